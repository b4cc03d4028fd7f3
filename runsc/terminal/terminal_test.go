package terminal

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"diapause.dev/api/snapshot"
	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// open returns the container's end of a new terminal.
func open(t *testing.T) *os.File {
	t.Helper()
	master, replica, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close(); replica.Close() })
	return replica
}

// TestSettings: a terminal with another's settings is like it in raw mode, keys and size.
func TestSettings(t *testing.T) {
	one, other := open(t), open(t)
	fresh, err := Read(other.Name())
	if err != nil {
		t.Fatal(err)
	}
	want := *fresh
	want.Local &^= unix.ICANON | unix.ECHO
	want.Characters = append([]byte(nil), want.Characters...)
	want.Characters[unix.VINTR], want.Rows, want.Columns = 7, 33, 101
	if err := Set(one, &want); err != nil {
		t.Fatal(err)
	}
	read, err := Read(one.Name())
	if err != nil || !reflect.DeepEqual(read, &want) {
		t.Fatalf("set %+v, read %+v, %v", want, read, err)
	}
	dir := t.TempDir()
	if err := (Settings{"shell": read}).Write(dir); err != nil {
		t.Fatal(err)
	}
	loaded, err := Load(dir)
	if err != nil || !reflect.DeepEqual(loaded, Settings{"shell": &want}) {
		t.Errorf("loaded %+v, %v", loaded, err)
	}
	if err := Set(other, loaded["shell"]); err != nil {
		t.Error(err)
	}
	if read, err = Read(other.Name()); err != nil || !reflect.DeepEqual(read, &want) {
		t.Errorf("the other is %+v, %v", read, err)
	}
}

// TestHostile: the settings in a snapshot may be anything, and so may a file.
func TestHostile(t *testing.T) {
	f := open(t)
	if err := Set(f, &snapshot.Terminal{
		Input: ^uint32(0), Output: ^uint32(0), Control: ^uint32(0), Local: ^uint32(0),
		Characters: make([]byte, 4096),
	}); err != nil {
		t.Error(err)
	}
	if err := Set(f, &snapshot.Terminal{}); err != nil {
		t.Error(err)
	}
	for name, text := range map[string]string{
		"large": `{"a":{"iflag":` + strings.Repeat("1", maxFile) + `}}`,
		"half":  `{"a":`,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if s, err := Load(dir); err == nil {
			t.Errorf("%s: loaded %v", name, s)
		}
	}
	if s, err := Load(t.TempDir()); s != nil || err != nil {
		t.Errorf("no file: %v, %v", s, err)
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a terminal that is not there was read")
	}
}
