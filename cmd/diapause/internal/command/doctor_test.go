package command

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestCheckSocket(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	listen := func(name string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tests := []struct {
		path string
		ok   bool
		says string
	}{
		{filepath.Join(dir, "none"), false, "diapause-agent"},
		{file, false, "not a socket"},
		{listen("open.sock", 0o666), false, "0666"},
		{listen("good.sock", 0o600), true, "0600"},
	}
	for _, tt := range tests {
		if c := checkSocket(tt.path); c.OK != tt.ok || !strings.Contains(c.Detail, tt.says) {
			t.Errorf("%s: %v %q, want %v and %q", tt.path, c.OK, c.Detail, tt.ok, tt.says)
		}
	}
}

func TestCheckUser(t *testing.T) {
	if c := checkUser(1000); c.OK || !strings.Contains(c.Detail, "root") {
		t.Errorf("user 1000: %v %q", c.OK, c.Detail)
	}
	if c := checkUser(0); !c.OK {
		t.Errorf("root: %q", c.Detail)
	}
}
