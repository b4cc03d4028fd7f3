package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"

	"diapause.dev/agent/journal"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc/lease"
	"diapause.dev/runsc/sidecar"
	"diapause.dev/runsc/sleep"
)

// sandboxID is the ID of the one sandbox.
const sandboxID = "sandbox"

// state is the state of a sandbox.
type state string

const (
	running state = "running"
	paused  state = "paused"
	exited  state = "exited" // containerd still knows it
	gone    state = "gone"
)

// sandbox is a pod as containerd and its shim know it. It notes wrongdoings: what must not be done to it.
type sandbox struct {
	leases bool                       // its shim knows leases
	safe   func(*journal.Record) bool // whether the snapshot of a request is in the spool
	runs   bool                       // it may be killed while it runs: it was saved by its own workload
	other  bool                       // its runtime cannot checkpoint
	asleep bool                       // there is no sandbox, and for containerd it runs

	mu          sync.Mutex
	state       state
	holder      string // of the lease of its pause
	ran         bool   // since it was last paused
	killed      bool
	wrongdoings []string
}

// set puts the sandbox into a state. Whether it has run since its snapshot follows from that.
func (s *sandbox) set(to state, holder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state, s.holder, s.ran = to, holder, to != paused
}

func (s *sandbox) now() (state, string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stateLocked(), s.holder
}

func (s *sandbox) stateLocked() state {
	if s.state == "" {
		return running
	}
	return s.state
}

func (s *sandbox) lives() bool {
	now, _ := s.now()
	return now == running || now == paused
}

func (s *sandbox) isKilled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.killed
}

// expire makes the lease of a pause run out, as if nobody had renewed it.
func (s *sandbox) expire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stateLocked() == paused && s.holder != "" {
		s.resumeLocked()
	}
}

func (s *sandbox) resumeLocked() { s.state, s.holder, s.ran = running, "", true }

func (s *sandbox) killLocked() {
	if s.ran && !s.runs {
		s.wrongLocked("killed, and it may have run since its snapshot")
	}
	s.state, s.holder, s.killed = exited, "", true
}

func (s *sandbox) pod() (*cri.Pod, error) {
	p := &cri.Pod{
		ID: sandboxID, Namespace: "default", Name: "pod", UID: "pod-uid", Runtime: cri.RuntimeType, Handler: "diapause",
		Containers: []cri.Container{{ID: "container", Name: "app", State: cri.StateRunning}},
	}
	if s.other {
		p.Runtime = "io.containerd.runc.v2"
	}
	switch s.stateLocked() {
	case gone:
		return nil, fmt.Errorf("pod %s: %w", sandboxID, cri.ErrNotFound)
	case running, paused:
		p.Ready, p.SandboxPID = true, sentryProcess().pid
		if s.asleep {
			p.SandboxPID = noProcess
		}
	}
	return p, nil
}

// runtime is containerd as one agent sees it. Its n-th call can fail or kill the agent, before or after it is carried
// out.
type runtime struct {
	*sandbox
	deliver func(sidecar.Options, *sidecar.Conn) error // hands a sidecar to the agent

	callsMu sync.Mutex
	calls   []string
	failing string // calls of that name fail
	at      int    // number of the first call that is hit; 0: none
	on      bool   // all calls from there on are hit
	after   bool   // a call that is hit is carried out, and only its answer is lost
	kills   bool   // the agent dies at the call
	dead    bool
	saves   func() error // called instead of a save, if set
	before  func(call string)
}

// lift makes containerd answer again.
func (r *runtime) lift() {
	r.callsMu.Lock()
	defer r.callsMu.Unlock()
	r.at = 0
}

// made returns the calls so far.
func (r *runtime) made() []string {
	r.callsMu.Lock()
	defer r.callsMu.Unlock()
	return r.calls
}

// call makes a call.
func (r *runtime) call(name string, do func() error) error {
	r.callsMu.Lock()
	if r.dead {
		r.callsMu.Unlock()
		return errFault
	}
	r.calls = append(r.calls, name)
	n := len(r.calls)
	hit := r.at > 0 && (n == r.at || r.on && n > r.at) || name == r.failing
	r.dead = hit && r.kills
	r.callsMu.Unlock()
	if r.before != nil {
		r.before(name)
	}
	if !hit {
		return do()
	}
	if r.after {
		do()
	}
	if r.kills {
		panic(crash{})
	}
	return fmt.Errorf("%s: %w", name, errFault)
}

// held is like call, but do runs with the sandbox's lock held.
func (r *runtime) held(name string, do func() error) error {
	return r.call(name, func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		return do()
	})
}

func (r *runtime) Find(ctx context.Context, target string) (*cri.Pod, error) {
	return r.Get(ctx, target)
}

func (r *runtime) Get(_ context.Context, id string) (p *cri.Pod, err error) {
	err = r.held("get", func() error {
		if id != sandboxID {
			return fmt.Errorf("pod %s: %w", id, cri.ErrNotFound)
		}
		p, err = r.pod()
		return err
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (r *runtime) Pods(context.Context) (pods []*cri.Pod, err error) {
	err = r.held("pods", func() error {
		if p, err := r.pod(); err == nil {
			pods = append(pods, p)
		}
		return nil
	})
	return pods, err
}

func (r *runtime) Running(context.Context, string) (ids []string, err error) {
	err = r.held("running", func() error {
		ids = []string{"container"}
		return nil
	})
	return ids, err
}

func (r *runtime) Record(context.Context, string) (p snapshot.Pod, err error) {
	err = r.held("record", func() error {
		p = snapshot.Pod{Containers: []snapshot.Container{{Name: "app", Config: []byte("{}")}}}
		return nil
	})
	return p, err
}

// Paused says that a sandbox runs which is paused by a lease, as the shim does.
func (r *runtime) Paused(context.Context, string) (is bool, err error) {
	err = r.held("paused", func() error {
		is = r.stateLocked() == paused && r.holder == ""
		if r.stateLocked() == gone {
			return fmt.Errorf("task %s: %w", sandboxID, cri.ErrNotFound)
		}
		return nil
	})
	return is, err
}

func (r *runtime) Resume(context.Context, string) error {
	return r.held("resume", func() error {
		if r.stateLocked() != paused {
			return fmt.Errorf("it is %s: %w", r.stateLocked(), errdefs.ErrFailedPrecondition)
		}
		r.resumeLocked()
		return nil
	})
}

func (r *runtime) PauseFor(_ context.Context, _, request string, _ time.Duration) (leased bool, err error) {
	err = r.held("pause", func() error {
		if r.stateLocked() != running {
			return fmt.Errorf("it is %s: %w", r.stateLocked(), errdefs.ErrFailedPrecondition)
		}
		r.state, r.ran, leased = paused, false, r.leases
		if leased {
			r.holder = request
		}
		return nil
	})
	return leased, err
}

// RenewPause is called at times of its own, so no fault hits it.
func (r *runtime) RenewPause(_ context.Context, _, request string, _ time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.holdsLocked(request)
}

func (r *runtime) holdsLocked(request string) error {
	if !r.leases {
		return errdefs.ErrInvalidArgument
	}
	if r.stateLocked() == gone {
		return cri.ErrNotFound
	}
	if r.stateLocked() != paused || r.holder != request {
		return lease.ErrRanOut
	}
	return nil
}

func (r *runtime) EndPause(_ context.Context, _, request string) error {
	return r.held("end pause", func() error {
		if err := r.holdsLocked(request); err != nil {
			return err
		}
		r.resumeLocked()
		return nil
	})
}

func (r *runtime) Kill(context.Context, *cri.Pod) error {
	return r.held("kill", func() error {
		if s := r.stateLocked(); s == running || s == paused {
			r.killLocked()
		}
		return nil
	})
}

func (r *runtime) KillPaused(_ context.Context, _ *cri.Pod, request string) error {
	return r.held("kill paused", func() error {
		err := r.holdsLocked(request)
		switch {
		case errdefs.IsInvalidArgument(err) && r.stateLocked() != paused:
			return lease.ErrRanOut
		case err != nil && !errdefs.IsInvalidArgument(err) && !errdefs.IsNotFound(err):
			return err
		case r.stateLocked() == paused:
			r.killLocked()
		}
		return nil
	})
}

// noProcess is more than the kernel's limit for the numbers of processes.
const noProcess = 1<<22 + 1

// EndAsleep ends a pod that sleeps, and leaves one alone that is awake.
func (r *runtime) EndAsleep(context.Context, *cri.Pod, int) error {
	return r.held("end asleep", func() error {
		switch {
		case r.asleep:
			r.asleep = false
			r.killLocked()
		case r.stateLocked() != exited:
			return sleep.ErrUnfit
		}
		return nil
	})
}

// Checkpoint saves the sandbox as its sentry does.
func (r *runtime) Checkpoint(_ context.Context, _, dir string) error {
	return r.call("checkpoint", func() error {
		if r.saves != nil {
			return r.saves()
		}
		f, err := os.Open(filepath.Join(dir, sidecar.OptionsFile))
		if err != nil {
			return err
		}
		defer f.Close()
		o, err := sidecar.ReadOptions(f)
		if err != nil {
			return err
		}
		return saveBy(r.deliver, o)
	})
}

// saveBy is the part of a sentry and its sidecar in a save.
func saveBy(deliver func(sidecar.Options, *sidecar.Conn) error, o sidecar.Options) error {
	agent, own, err := connection()
	if err != nil {
		return err
	}
	defer own.Close()
	if err := deliver(o, agent); err != nil {
		return errors.Join(err, agent.Close())
	}
	if err := hear(own); err != nil {
		return err
	}
	names := []string{
		checkpointfiles.StateFileName, checkpointfiles.PagesMetadataFileName, checkpointfiles.PagesFileName,
	}
	if o.Direction == sidecar.RootfsCheckpoint || o.Direction == sidecar.RootfsWorkload {
		names = []string{
			checkpointfiles.FSCheckpointManifestFileName, checkpointfiles.FSCheckpointMultiTarFileName,
			checkpointfiles.PagesMetadataFileName, checkpointfiles.PagesFileName,
		}
	}
	for i, name := range names {
		if err := writeOne(own, uint32(i), name); err != nil {
			return err
		}
	}
	return nil
}

// connection returns the two ends of a connection between an agent and a sidecar.
func connection() (agent, own *sidecar.Conn, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	var ends [2]*sidecar.Conn
	for i, fd := range pair {
		f := os.NewFile(uintptr(fd), "connection")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			return nil, nil, err
		}
		ends[i] = sidecar.NewConn(c.(*net.UnixConn))
	}
	return ends[0], ends[1], nil
}

// hear returns the error in the agent's answer.
func hear(c *sidecar.Conn) error {
	var m sidecar.Message
	if _, err := c.Receive(&m); err != nil {
		return err
	}
	return m.Err()
}

// process stands in for the sentry's process.
type process struct {
	pid    int
	memory *os.File
	cmd    *exec.Cmd // holds its standard input open
}

// sentryProcess starts the process once. It ends when the test's process ends, because that closes its standard input.
var sentryProcess = sync.OnceValue(func() process {
	fd, err := unix.MemfdCreate("runsc-memory", unix.MFD_CLOEXEC)
	if err == nil {
		_, err = unix.Pwrite(fd, make([]byte, 1<<16), 0)
	}
	if err != nil {
		panic(err)
	}
	cmd := exec.Command("cat")
	cmd.Args = []string{sandboxID} // by which it is known as the sandbox's
	memory := os.NewFile(uintptr(fd), "memory")
	cmd.ExtraFiles = []*os.File{memory}
	if _, err = cmd.StdinPipe(); err == nil {
		err = cmd.Start()
	}
	if err != nil {
		panic(err)
	}
	return process{cmd.Process.Pid, memory, cmd}
})

// writeOne writes an image file: pages of the memory file, or nothing.
func writeOne(c *sidecar.Conn, number uint32, name string) error {
	id := uint64(number)
	script := []sidecar.Message{{Kind: sidecar.KindOpen, ID: id, Text: name}}
	if name == checkpointfiles.PagesFileName {
		script = append(script, sidecar.Message{Kind: sidecar.KindRegister, File: number, Size: 1 << 16}, sidecar.Message{
			Kind: sidecar.KindWrite, File: number, Ranges: []memmap.FileRange{{Start: 0, End: 1 << 14}},
		})
	}
	for _, m := range append(script, sidecar.Message{Kind: sidecar.KindFinish, ID: id}) {
		with := -1
		if m.Kind == sidecar.KindRegister {
			with = int(sentryProcess().memory.Fd())
		}
		err := c.Send(&m, with)
		if err == nil && m.Kind != sidecar.KindWrite { // a write of pages is not answered
			err = hear(c)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
