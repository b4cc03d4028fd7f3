package shim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// maxRunscLog bounds how much of the end of runsc's log is searched for an error, in bytes. The error of a failed load
// comes with the stack of a goroutine and a map of all files.
const maxRunscLog = 256 << 10

// whyRunsc adds to an error of runsc the last error in its log. Runsc's own output goes to the container.
func whyRunsc(err error, path string) error {
	f, open := os.Open(path)
	if open != nil {
		return err
	}
	defer f.Close()
	fi, failed := f.Stat()
	if failed != nil {
		return err
	}
	from := max(0, fi.Size()-maxRunscLog)
	end, failed := io.ReadAll(io.NewSectionReader(f, from, maxRunscLog))
	if failed != nil {
		return err
	}
	if last := lastError(end); last != "" {
		return fmt.Errorf("%w: %.*s", err, maxRuntimeError, last)
	}
	return err
}

// lastError returns the last error in the end of a log of runsc, or "". There is nothing between two messages (gVisor,
// runsc/cmd/util, Errorf).
func lastError(end []byte) string {
	for i := len(end); i > 0; {
		if i = bytes.LastIndex(end[:i], []byte(`{"msg":`)); i < 0 {
			break
		}
		var message struct{ Level, Msg string }
		if json.NewDecoder(bytes.NewReader(end[i:])).Decode(&message) == nil && message.Level == "error" {
			return message.Msg
		}
	}
	return ""
}
