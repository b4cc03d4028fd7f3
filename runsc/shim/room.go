package shim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"diapause.dev/runsc/cgroup"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"
	"github.com/containerd/log"
)

// How much memory a save takes is known only afterwards. The sentry writes records of all its objects, and they live
// in its own memory: 3,000 closed connections took it from 46 MiB to 157, 20,000 files from 46 to 171. So it may use
// saveFactor times its memory, and saveBase for the processes beside it.
const (
	saveFactor = 4
	saveBase   = 128 << 20
)

// restoreRoom is how many bytes beyond its limit a sandbox may use during a restore. A sentry that reads 20,000 files
// back takes 50 MiB more than it needs afterwards.
const restoreRoom = 128 << 20

// keptGrowth is how many bytes more than before an operation gVisor may keep: its limits are put back when it has no
// more, and a program may not make use of more. besideGrowth is the part of it that is not measured: that of the
// processes beside the sentry.
const (
	keptGrowth   = 24 << 20
	besideGrowth = 4 << 20
)

// roomToSave raises the sandbox's limits for a save. The function that it returns puts them back, by limits.go. If the
// shim dies before, Stop in manager.go puts them back.
func (s *sandbox) roomToSave(ctx context.Context) (putBack func(), err error) {
	pid, before, err := s.own()
	if err != nil {
		return nil, err
	}
	give, err := s.makeRoom(ctx, pid, saveBase+saveFactor*before)
	if err != nil {
		return nil, err
	}
	s.saved.Store(before)
	return func() {
		give()
		s.limits.putBack(func() int64 { return s.grown(before) })
	}, nil
}

// roomy returns an error if the pod's limits are still raised, or if the node, or a cgroup that the pod shares with
// others, lacks the memory for a save.
func (s *sandbox) roomy(ctx context.Context) error {
	if err := s.unraised(); err != nil {
		return err
	}
	pid, before, err := s.own()
	if err != nil {
		return err
	}
	m, err := cgroup.MemoryOf(pid)
	if err != nil {
		return nil // makeRoom ignores this too
	}
	return s.shared(ctx, m, saveBase+saveFactor*before, func(_ grant, fits func([]grant) error) error {
		return s.grants.look(ctx, s.pod.sandbox, fits)
	})
}

// own returns the sandbox's process, and how much anonymous memory that process has.
func (s *sandbox) own() (pid int, bytes int64, err error) {
	if pid, err = s.bundle.process(); err != nil {
		return 0, 0, err
	}
	bytes, err = cgroup.Anonymous(pid)
	return pid, bytes, err
}

// unraised puts back limits that an earlier operation has raised. If it cannot, it returns an error.
func (s *sandbox) unraised() error {
	err := errors.Join(s.limits.ready(), s.cpu.ready())
	if err != nil {
		err = fmt.Errorf("%v: %w", err, errdefs.ErrResourceExhausted)
	}
	return err
}

// grown returns how many bytes gVisor itself has more than when its sentry had before. A sentry that is gone has none.
func (s *sandbox) grown(before int64) int64 {
	_, now, err := s.own()
	if err != nil {
		return 0
	}
	return max(0, now-before) + besideGrowth
}

// grownByRestore is grown for a sandbox that was restored, but never more than keptGrowth. How much its sentry had
// before is known only if the pod has slept. Until it has its memory, there is a sidecar beside it.
func (s *sandbox) grownByRestore() int64 {
	before := s.saved.Load()
	if before == 0 || s.lacking(s.pod.sandbox) {
		return keptGrowth
	}
	return min(s.grown(before), keptGrowth)
}

// roomToRestore raises the pod's limits until the restore of its sandbox, which need not be there yet, is complete. If
// a limit cannot be raised, it stays as it is.
func (s *sandbox) roomToRestore() (cancel func()) {
	err := s.raiseToRestore()
	if err != nil {
		log.L.WithError(err).Warnf("the restore of sandbox %s may run into its memory limit", s.pod.sandbox)
	}
	return func() { s.limits.putBack(s.limits.grown) }
}

func (s *sandbox) raiseToRestore() error {
	return s.limits.raise(func() ([]cgroup.Change, error) {
		return cgroup.RaiseAbove(s.pod.cgroup, restoreRoom, s.pod.owns)
	})
}

// complete reports whether a sandbox that was restored has all its memory.
func (s *sandbox) complete(context.Context) bool { return !s.lacking(s.pod.sandbox) }

// makeRoom lets the sandbox allocate need more bytes until the limits are put back. Until give is called, other saves
// cannot have them. If the node, or a cgroup that the pod shares with others, has less, it returns an error.
func (s *sandbox) makeRoom(ctx context.Context, pid int, need int64) (give func(), err error) {
	if err := s.unraised(); err != nil {
		return nil, err
	}
	m, err := cgroup.MemoryOf(pid)
	if err != nil {
		log.L.WithError(err).Warnf("sandbox %s may run into its memory limit", s.pod.sandbox)
		return func() {}, nil
	}
	err = s.shared(ctx, m, need, func(own grant, fits func([]grant) error) (err error) {
		give, err = s.grants.take(ctx, s.pod.sandbox, own, fits)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := s.limits.raise(func() ([]cgroup.Change, error) { return m.Raise(need, s.pod.owns) }); err != nil {
		give()
		return nil, err
	}
	return give, nil
}

// A save that lacks only what other saves may take waits for them, up to roomLimit, and looks again every roomPause.
const (
	roomLimit = 5 * time.Second
	roomPause = 50 * time.Millisecond
)

// shared calls ask with what a save may take. Fits returns an error unless the node and the cgroups above the pod's
// have need more bytes free than the grants of other saves. If that is for these grants alone, shared waits.
func (s *sandbox) shared(ctx context.Context, m *cgroup.Memory, need int64,
	ask func(own grant, fits func([]grant) error) error,
) error {
	for end := time.Now().Add(roomLimit); ; {
		levels, err := m.Levels()
		if err != nil {
			return err
		}
		levels = slices.DeleteFunc(levels, func(l cgroup.Level) bool { return s.pod.owns(l.Dir) })
		own := grant{Bytes: need}
		for _, l := range levels {
			own.Cgroups = append(own.Cgroups, l.Dir)
		}
		err = ask(own, func(others []grant) error { return fits(need, levels, others) })
		if _, waits := errors.AsType[grantedError](err); !waits || time.Now().After(end) || !wait(ctx, roomPause) {
			return err
		}
	}
}

// grantedError is the error for memory that is free, but that other saves may take.
type grantedError struct{ error }

func (e grantedError) Unwrap() error { return e.error }

// fits returns an error unless the node and these cgroups have need more bytes free than the grants of other saves.
func fits(need int64, levels []cgroup.Level, others []grant) error {
	for _, l := range levels {
		of := fmt.Sprintf("cgroup %s has %d MiB of %d left", l.Dir, l.Free()>>20, l.Limit>>20)
		if err := short(need, l.Free(), sum(others, l.Dir), of); err != nil {
			return err
		}
	}
	free, err := cgroup.Available()
	if err != nil {
		return err
	}
	return short(need, free, sum(others, ""), fmt.Sprintf("the node has %d MiB", free>>20))
}

// short returns an error unless need bytes are free beside those that are granted. Of says what has them.
func short(need, free, granted int64, of string) error {
	if free-granted >= need {
		return nil
	}
	if granted > 0 {
		of += fmt.Sprintf(", of which other checkpoints may take %d", granted>>20)
	}
	err := fmt.Errorf("it may take %d MiB more memory, and %s: free memory first: %w", need>>20, of,
		errdefs.ErrResourceExhausted)
	if free >= need {
		return grantedError{err}
	}
	return err
}

// owns reports whether a cgroup is the pod's own. Its name then contains the sandbox's id or the pod's UID, with
// dashes or, under systemd, with underscores. A sandbox may also be in somebody else's cgroup: if runsc ignores
// cgroups, it is in containerd's.
func (p pod) owns(dir string) bool {
	name := filepath.Base(dir)
	for _, id := range []string{p.sandbox, p.uid, strings.ReplaceAll(p.uid, "-", "_")} {
		if id != "" && strings.Contains(name, id) {
			return true
		}
	}
	return false
}

// reduceLimit bounds the request by which the sentry frees memory.
const reduceLimit = 5 * time.Second

// reduceCall is that request, in gVisor's control protocol. It makes the sentry collect garbage. A sentry that is
// mostly idle does so only every two minutes.
const reduceCall = `{"method":"Usage.Reduce","arg":{"wait":false,"do_not_gc":false}}`

// reduce asks the sentry to free memory that it no longer needs. It ignores the content of the answer.
func (s *sandbox) reduce(ctx context.Context) error {
	conn, err := s.control(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if err := conn.SetDeadline(time.Now().Add(reduceLimit)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte(reduceCall)); err != nil {
		return fmt.Errorf("ask the sentry to free memory: %w", err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("ask the sentry to free memory: %w", err)
	}
	return nil
}

// control connects to the socket on which the sentry serves runsc. Runsc makes the socket in the first of these
// directories where it can.
func (s *sandbox) control(ctx context.Context) (*net.UnixConn, error) {
	root, err := s.runscRoot(namespaces.WithNamespace(ctx, s.namespace))
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, dir := range []string{root, "/var/run", "/run"} {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", filepath.Join(dir, "runsc-"+s.pod.sandbox+".sock"))
		if err == nil {
			return conn.(*net.UnixConn), nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}
