package command

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"diapause.dev/agent/errkind"
	"diapause.dev/test/docs/help"
)

var update = flag.Bool("update", false, "write the page of the command line")

// page is the reference of the command line.
const page = "../../../../docs/reference/cli.md"

// TestReference: the page has the help of each command, the exit codes, and the codes of errors.
func TestReference(t *testing.T) {
	t.Setenv("DIAPAUSE_SOCKET", "")
	root := (&tool{console: console{out: io.Discard, err: io.Discard}}).root()
	help.Check(t, page, *update, root)
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for _, code := range []int{
		errkind.ExitOK, errkind.ExitFailure, errkind.ExitUsage, errkind.ExitNotFound, errkind.ExitInterrupted,
	} {
		if row := fmt.Sprintf("\n| %d |", code); !strings.Contains(string(b), row) {
			t.Errorf("%s has no row of the exit code %d", page, code)
		}
	}
	for _, class := range errkind.Classes {
		if !strings.Contains(string(b), "`"+class.Name+"`") {
			t.Errorf("%s does not name the error code %s", page, class.Name)
		}
	}
}
