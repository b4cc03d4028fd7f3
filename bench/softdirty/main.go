// Command softdirty looks whether the kernel's soft-dirty bits name every page of a sandbox that was written. It runs a
// sandbox, clears the bits of all processes that map its memory file, has the sandbox write pages in several ways, and
// counts those that were written and have no bit. Bench/README.md says what it has shown.
//
//	CGO_ENABLED=0 go run ./bench/softdirty --runsc PATH
//
// It runs in the sandbox, too, and so has to be static. It needs root, and a kernel with CONFIG_MEM_SOFT_DIRTY, as
// Debian's and Ubuntu's are.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// limit bounds the whole run. It takes some 20 s in a virtual machine without KVM.
const limit = 5 * time.Minute

// settle is how long the sandbox rests before the bits are cleared, and before they are read.
const settle = 2 * time.Second

func main() {
	if len(os.Args) == 2 && os.Args[1] == insideArg {
		exitOn(write())
		return
	}
	path := flag.String("runsc", "runsc", "`path` of the program")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	exitOn(run(ctx, *path))
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "softdirty: failed:", err)
		os.Exit(1)
	}
}

// run runs the sandbox with that runsc, and prints what the bits have missed.
func run(ctx context.Context, runsc string) (err error) {
	if err := supported(); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "softdirty-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := makeBundle(dir); err != nil {
		return err
	}
	s, err := start(ctx, runsc, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	if err := s.expect(ready); err != nil {
		return err
	}
	time.Sleep(settle)
	processes, err := clearBits()
	if err != nil {
		return err
	}
	fmt.Printf("%d processes map the memory file of the sandbox\n", processes)
	if err := s.proceed(); err != nil {
		return err
	}
	if err := s.expect(written); err != nil {
		return err
	}
	time.Sleep(settle)
	return report()
}

// report prints which pages have no bit.
func report() error {
	bits, err := readBits()
	if err != nil {
		return err
	}
	pages, err := markedPages()
	if err != nil {
		return err
	}
	for way, name := range ways {
		missed := 0
		for _, number := range pages[way] {
			if !bits[number] {
				missed++
			}
		}
		if len(pages[way]) == 0 {
			return fmt.Errorf("%s: no page is found that was written", name)
		}
		fmt.Printf("%s: %d pages were written, %d of them have no bit\n", name, len(pages[way]), missed)
	}
	return nil
}

// config is the bundle's configuration.
const config = `{"ociVersion": "1.0.0", "root": {"path": "rootfs"}, "hostname": "softdirty",
 "process": {"user": {"uid": 0, "gid": 0}, "args": ["/softdirty", "` + insideArg + `"], "env": ["PATH=/"], "cwd": "/"},
 "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"},
  {"destination": "` + memory + `", "type": "tmpfs", "source": "tmpfs"}],
 "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}, {"type": "ipc"}, {"type": "uts"}]}}
`

// makeBundle makes a bundle that runs this program.
func makeBundle(dir string) error {
	root := filepath.Join(dir, "rootfs")
	for _, name := range []string{"proc", memory} {
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			return err
		}
	}
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer self.Close()
	program, err := os.OpenFile(filepath.Join(root, "softdirty"), os.O_WRONLY|os.O_CREATE, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(program, self)
	if err = errors.Join(err, program.Close()); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o600)
}

// sandbox is a run of runsc.
type sandbox struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	said *bufio.Scanner
}

func start(ctx context.Context, runsc, dir string) (*sandbox, error) {
	cmd := exec.CommandContext(ctx, runsc, "--root="+filepath.Join(dir, "state"), "--platform=systrap", "--network=none",
		"--ignore-cgroups", "--overlay2=none", "run", "--bundle="+dir, "softdirty")
	cmd.Cancel = func() error { return cmd.Process.Signal(unix.SIGTERM) } // runsc passes it on
	cmd.WaitDelay = 10 * time.Second
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &sandbox{cmd: cmd, in: in, said: bufio.NewScanner(out)}, cmd.Start()
}

// expect waits until the program in the sandbox says that.
func (s *sandbox) expect(word string) error {
	if !s.said.Scan() || s.said.Text() != word {
		return fmt.Errorf("the sandbox says %q, not %q: %w", s.said.Text(), word, s.said.Err())
	}
	return nil
}

// proceed lets the program write.
func (s *sandbox) proceed() error {
	_, err := fmt.Fprintln(s.in)
	return err
}

// end has the program end, and waits for runsc.
func (s *sandbox) end() error {
	s.in.Close()
	return s.cmd.Wait()
}
