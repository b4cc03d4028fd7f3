package bed

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	// shownLines is how many lines of a saved log a test shows.
	shownLines = 15
	// shownBytes bounds one of them.
	shownBytes = 400
)

// trouble matches a line of a log that is a warning, an error or the end of a program: as slog, logrus and klog write
// them, in text or as JSON.
var trouble = regexp.MustCompile(`(?i)\blevel"?[=:] ?"?(warn|err|fatal|panic)|^[WEF]\d{4} |^panic: |^fatal error: `)

// SaveLog writes a log to a file, for a test that has failed, and shows its path and its last lines that are warnings
// or errors. The name tells the logs of one test apart: it is the file's, without ".log". The directory is the test's
// of artifacts, with the flag -artifacts, and otherwise the program's and the test's own below .cache/test/logs of the
// checkout, where the next failure replaces the file. A log that cannot be saved is shown as a whole.
func SaveLog(t testing.TB, name, text string) {
	t.Helper()
	dir, err := logsOf(t)
	if err == nil {
		text, err = saveLog(dir, name, text)
	}
	if err != nil {
		t.Errorf("the log %s is not saved: %v", name, err)
	}
	t.Log(text)
}

// saveLog writes a log to a file in the directory, and returns what to show of it: all if that fails.
func saveLog(dir, name, text string) (string, error) {
	path := filepath.Join(dir, fileName(name)+".log")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		return text, err
	}
	return fmt.Sprintf("log %s is in %s; its last warnings and errors:\n%s", name, path, troubles(text)), nil
}

// logsOf makes the directory for the logs of a test.
func logsOf(t testing.TB) (string, error) {
	if f := flag.Lookup("test.artifacts"); f != nil && f.Value.String() == "true" {
		return t.ArtifactDir(), nil
	}
	return logsDir(t.Name())
}

// logsDir makes a directory of the program for logs.
func logsDir(name string) (string, error) {
	if here == nil {
		return "", errOutside
	}
	program := strings.TrimSuffix(filepath.Base(os.Args[0]), ".test")
	dir := filepath.Join(here.Bin.Root, ".cache", "test", "logs", program, fileName(name))
	return dir, os.MkdirAll(dir, 0o755)
}

// fileName is a name without what would be a path.
func fileName(name string) string { return strings.ReplaceAll(name, "/", "-") }

// troubles returns the last lines of a log that are warnings or errors.
func troubles(log string) string {
	var lines []string
	for line := range strings.Lines(log) {
		if trouble.MatchString(line) {
			lines = append(lines, fmt.Sprintf("%.*s", shownBytes, strings.TrimSuffix(line, "\n")))
		}
	}
	if len(lines) == 0 {
		return "(none)"
	}
	return strings.Join(lines[max(0, len(lines)-shownLines):], "\n")
}
