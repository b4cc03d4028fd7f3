package sidecar

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// TestHeld: a sidecar counts as running from when it holds its options until its process ends, however it ends.
func TestHeld(t *testing.T) {
	if os.Getenv("HOLD") != "" {
		if err := hold(3); err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString("!")
		select {}
	}
	dir := t.TempDir()
	is := func(want bool) {
		t.Helper()
		if got, err := Held(dir); got != want || err != nil {
			t.Errorf("held: %v, %v", got, err)
		}
	}
	is(false)
	o := Options{Socket: "/s", Request: "r", Token: "t", Direction: Restore}
	if err := o.Write(dir); err != nil {
		t.Fatal(err)
	}
	is(false)
	f, err := os.Open(filepath.Join(dir, OptionsFile))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHeld$")
	cmd.Env, cmd.ExtraFiles = append(os.Environ(), "HOLD=1"), []*os.File{f}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	is(true)
	is(true)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	cmd.Wait()
	is(false)
}
