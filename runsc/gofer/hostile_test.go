package gofer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
	"gvisor.dev/gvisor/pkg/sentry/state/stateipc"
	"gvisor.dev/gvisor/pkg/unet"
	"gvisor.dev/gvisor/pkg/urpc"

	"diapause.dev/runsc/capture"
	"diapause.dev/runsc/sidecar"
	"diapause.dev/test/privileged"
)

// program returns the sidecar as it is installed.
func program(t *testing.T) string {
	t.Helper()
	privileged.Need(t, "a sidecar that gives up root")
	path := filepath.Join(t.TempDir(), "checkpointgofer")
	cmd := exec.Command("go", "build", "-o", path, "diapause.dev/cmd/checkpointgofer")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// attack is a sentry that has been taken over, with a sidecar in a process of its own.
type attack struct {
	t      *testing.T
	socket int
	cmd    *exec.Cmd
	exited chan error
	taken  *capture.Capture
}

// attacks starts a sidecar that saves, and an agent for it.
func attacks(t *testing.T, program string, pages capture.Pages) (*attack, *agent) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	a := startAgent(t, path, &agent{pages: pages})
	t.Cleanup(a.stop)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	o := sidecar.Options{Socket: path, Request: "r", Token: "t", Direction: sidecar.Checkpoint}
	if err := o.Write(dir); err != nil {
		t.Fatal(err)
	}
	options, err := os.Open(filepath.Join(dir, sidecar.OptionsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer options.Close()
	theirs := os.NewFile(uintptr(fds[1]), "socket")
	defer theirs.Close()
	x := &attack{t: t, socket: fds[0], exited: make(chan error, 1)}
	x.cmd = exec.Command(program, "-sock-fd=3", "-gcs-opts-fd=4", "-allow-checkpoint-writes")
	x.cmd.ExtraFiles = []*os.File{theirs, options}
	if err := x.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { x.exited <- x.cmd.Wait() }()
	t.Cleanup(func() { _ = x.cmd.Process.Kill() })
	x.taken = <-a.taken
	return x, a
}

// client speaks gVisor's protocol.
func (x *attack) client() *stateipc.AsyncFileClient {
	x.t.Helper()
	s, err := unet.NewSocket(x.socket)
	if err != nil {
		x.t.Fatal(err)
	}
	c, err := stateipc.NewAsyncFileClient(urpc.NewClient(s))
	if err != nil {
		x.t.Fatal(err)
	}
	return c
}

// failed fails unless the capture fails within seconds, with nothing of it left under way.
func (x *attack) failed() {
	x.t.Helper()
	ctx, cancel := context.WithTimeout(x.t.Context(), 20*time.Second)
	defer cancel()
	if _, err := x.taken.Image(ctx); !errors.Is(err, capture.ErrIncomplete) {
		x.t.Errorf("image: %v", err)
	}
}

// pagesOf opens pages.img and registers a memory file of two pages.
func pagesOf(t *testing.T, c *stateipc.AsyncFileClient) (stateio.AsyncWriter, stateio.SourceFile) {
	t.Helper()
	w, err := c.OpenWrite(checkpointfiles.PagesFileName)
	if err != nil {
		t.Fatal(err)
	}
	fd, _ := memory(t, 2*page)
	sf, err := w.RegisterSourceFD(fd, 2*page, nil)
	if err != nil {
		t.Fatal(err)
	}
	return w, sf
}

// TestHostileSentrySave: what a sentry that has been taken over sends while it saves costs its own sidecar, and one
// checkpoint. The agent lives, and does not grow.
func TestHostileSentrySave(t *testing.T) {
	bin := program(t)
	one := memmap.FileRange{Start: 0, End: page}
	for name, do := range map[string]func(*testing.T, *attack){
		// gVisor's server fails in a goroutine of its own for an id that is too large: the process dies.
		"id out of range": func(t *testing.T, x *attack) {
			w, sf := pagesOf(t, x.client())
			w.AddWrite(1<<20, sf, one, nil)
			if _, err := w.Wait(nil, 1); err == nil {
				t.Error("taken")
			}
		},
		// Its server waits for completions that never come.
		"more completions than writes": func(t *testing.T, x *attack) {
			w, sf := pagesOf(t, x.client())
			w.AddWrite(0, sf, one, nil)
			go w.Wait(nil, 1000)
			time.AfterFunc(200*time.Millisecond, x.taken.Abort) // as the agent does when its time for a capture is over
		},
		// Its decoder keeps a string until it ends.
		"endless string": func(t *testing.T, x *attack) {
			_, err := unix.Write(x.socket, []byte(`{"method":"`))
			more := bytes.Repeat([]byte{'a'}, 1<<20)
			for sent := 0; err == nil && sent < 4<<30; sent += len(more) {
				_, err = unix.SendmsgN(x.socket, more, nil, nil, unix.MSG_NOSIGNAL)
			}
			if err == nil {
				t.Error("4 GiB were taken")
			}
		},
		// Its server maps whatever size the sentry claims.
		"memory files of any size": func(t *testing.T, x *attack) {
			c := x.client()
			w, err := c.OpenWrite(checkpointfiles.PagesFileName)
			if err != nil {
				t.Fatal(err)
			}
			fd, _ := memory(t, page)
			for range 64 {
				if _, err = w.RegisterSourceFD(fd, 1<<45, nil); err != nil {
					break
				}
			}
			if err == nil {
				t.Error("2 PiB were registered")
			}
			x.taken.Abort()
		},
		"hung up in the middle": func(t *testing.T, x *attack) {
			w, sf := pagesOf(t, x.client())
			w.AddWrite(0, sf, one, nil)
			unix.Shutdown(x.socket, unix.SHUT_RDWR)
		},
	} {
		t.Run(name, func(t *testing.T) {
			x, _ := attacks(t, bin, capture.Discard{})
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			do(t, x)
			x.failed()
			runtime.ReadMemStats(&after)
			if grown := int64(after.Sys) - int64(before.Sys); grown > 128<<20 {
				t.Errorf("the agent has grown by %d MiB", grown>>20)
			}
			select {
			case <-x.exited:
			case <-time.After(20 * time.Second):
				t.Error("the sidecar lives on")
			}
		})
	}
}

// TestHostileSidecarHasNothing: a sidecar that serves a save has no rights that would be worth taking it over.
func TestHostileSidecarHasNothing(t *testing.T) {
	x, _ := attacks(t, program(t), capture.Discard{})
	pagesOf(t, x.client())
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", x.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\nUid:\t65534\t65534\t65534\t65534\n", "\nGid:\t65534\t65534\t65534\t65534\n", "\nGroups:\t \n",
		"\nCapInh:\t0000000000000000\n", "\nCapPrm:\t0000000000000000\n", "\nCapEff:\t0000000000000000\n",
		"\nCapAmb:\t0000000000000000\n", "\nNoNewPrivs:\t1\n",
	} {
		if !strings.Contains(string(b), want) {
			t.Errorf("its status does not have %q:\n%s", want, b)
		}
	}
	x.taken.Abort()
	x.failed()
}

// TestHostileSidecarSave sends what no sidecar would send for a save. Nothing is taken that must not be, and the
// listener serves on.
func TestHostileSidecarSave(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	a := startAgent(t, path, &agent{pages: capture.Discard{}})
	defer a.stop()
	fd, _ := memory(t, 2*page)
	type m = sidecar.Message
	open := m{Kind: sidecar.KindOpen, Text: checkpointfiles.PagesFileName}
	state := m{Kind: sidecar.KindOpen, Text: checkpointfiles.StateFileName}
	register := m{Kind: sidecar.KindRegister, Size: 2 * page}
	ranges := func(start, end uint64) m {
		return m{Kind: sidecar.KindWrite, Ranges: []memmap.FileRange{{Start: start, End: end}}}
	}
	for name, script := range map[string][]m{
		"write of what is not open":           {ranges(0, page)},
		"unknown file":                        {{Kind: sidecar.KindOpen, Text: "../x"}},
		"number out of turn":                  {{Kind: sidecar.KindOpen, ID: 1, Text: checkpointfiles.PagesFileName}},
		"opened twice":                        {open, {Kind: sidecar.KindOpen, ID: 1, Text: checkpointfiles.PagesFileName}},
		"memory for what is not open":         {register},
		"memory that is not there":            {open, ranges(0, page)},
		"pages past the memory file":          {open, register, ranges(2*page, 3*page)},
		"state past the memory file":          {state, register, ranges(2*page, 3*page)},
		"half a page":                         {open, register, ranges(0, 100)},
		"nothing":                             {open, register, {Kind: sidecar.KindWrite}},
		"more than the memory":                {open, register, ranges(0, 2*page), ranges(0, page)},
		"write to what was refused":           {{Kind: sidecar.KindOpen, Text: "x"}, ranges(0, page)},
		"memory for what was refused":         {{Kind: sidecar.KindOpen, Text: "x"}, register},
		"finish of what was refused":          {{Kind: sidecar.KindOpen, Text: "x"}, {Kind: sidecar.KindFinish}},
		"finished twice":                      {open, {Kind: sidecar.KindFinish}, {Kind: sidecar.KindFinish}},
		"finish of what is not open":          {{Kind: sidecar.KindFinish, ID: 7}},
		"write after the end":                 {open, register, {Kind: sidecar.KindFinish}, ranges(0, page)},
		"state after the end":                 {state, register, {Kind: sidecar.KindFinish}, ranges(0, page)},
		"an answer and not a question":        {{Kind: sidecar.KindCompleted}},
		"a read":                              {{Kind: sidecar.KindRead}},
		"a memory file that is not sent with": {open, {Kind: sidecar.KindRegister, ID: 1, Size: page, File: 9}},
	} {
		t.Run(name, func(t *testing.T) {
			c := helloTo(t, path, "checkpoint")
			defer c.Close()
			taken := <-a.taken
			if err := c.Unix().SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
				t.Fatal(err)
			}
			var last m
			for i, m := range script {
				with := -1
				if m.Kind == sidecar.KindRegister && m.File != 9 {
					with = int(fd)
				}
				if err := c.Send(&m, with); err != nil {
					break // hung up on
				}
				if m.Kind == sidecar.KindWrite && i < len(script)-1 {
					continue // a write of pages is not answered
				}
				if _, err := c.Receive(&last); err != nil {
					if errors.Is(err, os.ErrDeadlineExceeded) {
						t.Error("neither answered nor hung up on")
					}
					last.Text = err.Error()
					break
				}
			}
			if last.Err() == nil {
				t.Errorf("answered with %+v", last)
			}
			c.Close()
			if _, err := taken.Image(t.Context()); !errors.Is(err, capture.ErrIncomplete) {
				t.Errorf("image: %v", err)
			}
		})
	}
}

// helloTo introduces a sidecar to an agent, and is welcomed.
func helloTo(t *testing.T, path, direction string) *sidecar.Conn {
	t.Helper()
	c, err := sidecar.Dial(path)
	if err != nil {
		t.Fatal(err)
	}
	m := sidecar.Message{
		Kind: sidecar.KindHello,
		Text: `{"diapause":1,"socket":"/s","request":"r","token":"t","direction":"` + direction + `"}`,
	}
	if err := c.Send(&m, -1); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Receive(&m); err != nil || m.Err() != nil {
		t.Fatal(err, m.Err())
	}
	return c
}

// TestHostileMemoryIsAPipe: what would have the agent wait for whoever holds its other end is not taken, neither for a
// save nor for a restore.
func TestHostileMemoryIsAPipe(t *testing.T) {
	for _, direction := range []string{"checkpoint", "restore"} {
		path := filepath.Join(t.TempDir(), "s")
		a := startAgent(t, path, &agent{pages: capture.Discard{}, src: newImage(4 * page)})
		defer a.stop()
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		defer w.Close()
		c := helloTo(t, path, direction)
		defer c.Close()
		for _, m := range []sidecar.Message{
			{Kind: sidecar.KindOpen, Text: checkpointfiles.PagesFileName}, {Kind: sidecar.KindRegister, Size: page},
		} {
			with := -1
			if m.Kind == sidecar.KindRegister {
				with = int(r.Fd())
			}
			var answer sidecar.Message
			if err := c.Send(&m, with); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Receive(&answer); err != nil {
				t.Fatal(err)
			}
			if refused := answer.Err() != nil; refused != (m.Kind == sidecar.KindRegister) {
				t.Errorf("%s: the answer to a message of kind %d is %v", direction, m.Kind, answer.Err())
			}
		}
	}
}
