package shim

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// maxRunscLog bounds how much of the end of runsc's log is searched for an error, in bytes.
const maxRunscLog = 16 << 10

// whyRunsc adds to an error of runsc the last error in its log. Runsc's own output goes to the container.
func whyRunsc(err error, path string) error {
	f, open := os.Open(path)
	if open != nil {
		return err
	}
	defer f.Close()
	if fi, stat := f.Stat(); stat == nil && fi.Size() > maxRunscLog {
		if _, seek := f.Seek(-maxRunscLog, io.SeekEnd); seek != nil {
			return err
		}
	}
	var last string
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var line struct{ Level, Msg string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Level == "error" {
			last = line.Msg
		}
	}
	if last == "" {
		return err
	}
	return fmt.Errorf("%w: %.*s", err, maxRuntimeError, last)
}
