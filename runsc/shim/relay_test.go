package shim

import (
	"io"
	"os"
	"os/exec"
	"testing"
)

// TestRelay: the output of a container reaches gVisor's shim whole. It ends with the container, even if something
// else could still write.
func TestRelay(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	m := &fakeMonitor{create: func(cmd *exec.Cmd) {}}
	c := terminals{next: m, all: make(map[string]*terminal)}
	c.expect("id", &terminal{restored: true, plain: true})
	cmd := &exec.Cmd{Args: []string{"runsc", "start", "id"}, Stdout: out, Stderr: io.Discard}
	var sentry *os.File // never closes the stream
	m.create = func(cmd *exec.Cmd) {
		fd, err := dup(cmd.Stdout.(*os.File))
		if err != nil {
			t.Fatal(err)
		}
		sentry = fd
	}
	if _, err := c.Start(cmd); err != nil {
		t.Fatal(err)
	}
	defer sentry.Close()
	if err := out.Close(); err != nil { // as gVisor's shim does
		t.Fatal(err)
	}
	data := make([]byte, 60<<10)
	if _, err := sentry.Write(data); err != nil {
		t.Fatal(err)
	}
	c.exited("id")
	c.exited("other")
	got, err := io.ReadAll(in)
	if err != nil || len(got) != len(data) {
		t.Errorf("read %d bytes, %v, want %d", len(got), err, len(data))
	}
	c.forget("id")
}

// TestRelayEnds: a relay ends by itself when nothing can write any more.
func TestRelayEnds(t *testing.T) {
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	cmd := &exec.Cmd{Stdout: out, Stderr: out}
	all, given, err := relays(cmd)
	if err != nil || len(all) != 2 {
		t.Fatalf("%d relays, %v", len(all), err)
	}
	for _, r := range all {
		go r.run()
	}
	if _, err := given[1].WriteString("last"); err != nil {
		t.Fatal(err)
	}
	closeAll(append(given, out))
	if got, err := io.ReadAll(in); err != nil || string(got) != "last" {
		t.Errorf("read %q, %v", got, err)
	}
}

func dup(f *os.File) (*os.File, error) {
	r, w, err := newRelay(f) // a second descriptor of the same pipe
	if err != nil {
		return nil, err
	}
	w.Close()
	r.in.Close()
	return r.out, nil
}
