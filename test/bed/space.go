package bed

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// space is where daemons run: the bed's own namespaces, or those of a node.
type space struct {
	root  string                // where its file tree is to be seen
	logs  string                // the directory of its daemons' logs, as seen from the bed
	start func(*exec.Cmd) error // starts a process in it
}

// base is the bed's own.
var base = space{root: "/", logs: logDir, start: (*exec.Cmd).Start}

// path is where the file that is at name in the space is to be seen.
func (s space) path(name string) string { return filepath.Join(s.root, name) }

// log is the path, as seen from the bed, of the log of that name.
func (s space) log(name string) string { return filepath.Join(s.logs, name+".log") }

// writeFiles writes files in the space, whose contents are given by path, and
// makes their directories. Only root can read them.
func (s space) writeFiles(files map[string]string) error {
	for name, content := range files {
		path := s.path(name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("bed: %w", err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return fmt.Errorf("bed: %w", err)
		}
	}
	return nil
}
