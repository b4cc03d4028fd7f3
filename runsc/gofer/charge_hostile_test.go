package gofer_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"

	"diapause.dev/runsc/gofer"
	"diapause.dev/runsc/sidecar"
)

const mib = 1 << 20

// liar is a sidecar that was taken over. It has one chunk of the image written into ever new ranges of a file.
type liar struct {
	t    *testing.T
	path string // of the agent's socket
	file *os.File
	next uint64 // where the next chunk goes
}

// session has at most n chunks written in one session, and returns how many were.
func (l *liar) session(n int) (written int) {
	l.t.Helper()
	c, err := sidecar.Dial(l.path)
	if err != nil {
		l.t.Fatal(err)
	}
	defer c.Close()
	type m = sidecar.Message
	script := []m{
		{
			Kind: sidecar.KindHello,
			Text: `{"diapause":1,"socket":"/s","request":"r","token":"t","direction":"restore"}`,
		},
		{Kind: sidecar.KindOpen, Text: checkpointfiles.PagesFileName},
		{Kind: sidecar.KindRegister, Size: 64 << 30},
	}
	for i := range len(script) + n {
		ask := m{Kind: sidecar.KindRead, ID: uint64(i)}
		with := -1
		if i < len(script) {
			ask = script[i]
		} else {
			ask.Ranges = []memmap.FileRange{{Start: l.next, End: l.next + mib}}
			l.next += mib
		}
		if ask.Kind == sidecar.KindRegister {
			with = int(l.file.Fd())
		}
		if err := c.Send(&ask, with); err != nil {
			return written
		}
		var answer m
		if _, err := c.Receive(&answer); err != nil || answer.Err() != nil {
			return written
		}
		if answer.Kind == sidecar.KindCompleted {
			written++
		}
	}
	return written
}

// allocated returns how many bytes the file has taken.
func (l *liar) allocated() int64 {
	l.t.Helper()
	var st unix.Stat_t
	if err := unix.Fstat(int(l.file.Fd()), &st); err != nil {
		l.t.Fatal(err)
	}
	return st.Blocks * 512
}

// sparse returns an empty file, in memory or on a disk.
func sparse(t *testing.T, onDisk bool) *os.File {
	t.Helper()
	if onDisk {
		f, err := os.Create(filepath.Join(t.TempDir(), "filestore"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	fd, err := unix.MemfdCreate("memory", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	t.Cleanup(func() { f.Close() })
	return f
}

// seesHoles reports whether the kernel can tell where a file in memory has no pages: from 6.5 on.
func seesHoles(file *os.File) bool {
	var st unix.Cachestat_t
	return unix.Cachestat(uint(file.Fd()), &unix.CachestatRange{}, &st, 0) == nil
}

// TestHostileSparseDestination: a sidecar has the same part of the image written into ever new ranges of an empty file.
// In memory that costs the agent nothing. On a disk it costs the image's size and a little more, over all its sessions.
func TestHostileSparseDestination(t *testing.T) {
	const most = mib + 8*32*mib // the image, and what eight sessions may repeat
	for name, onDisk := range map[string]bool{"in memory": false, "on a disk": true} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			im := newImage(mib)
			a := startAgent(t, path, &agent{src: im})
			l := &liar{t: t, path: path, file: sparse(t, onDisk)}
			written := 0
			for range 12 {
				written += l.session(64)
			}
			a.stop()
			if got := l.allocated(); got > most || !onDisk && seesHoles(l.file) && got > 0 {
				t.Errorf("%d MiB of an image of 1 MiB were written, the file has %d MiB", written, got/mib)
			}
			if len(im.breaches) == 0 || !errors.Is(im.breaches[0], gofer.ErrBreach) {
				t.Errorf("the agent was told of %v", im.breaches)
			}
		})
	}
}

// TestHostileHoles: nothing is written where memory was allocated when it was asked for, and is gone by the time of the
// write.
func TestHostileHoles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	im, file := newImage(mib), sparse(t, false)
	fd := int(file.Fd())
	im.gate = func(context.Context, int64) error {
		return unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, page, 2*page)
	}
	a := startAgent(t, path, &agent{src: im})
	if err := unix.Fallocate(fd, 0, 0, mib); err != nil {
		t.Fatal(err)
	}
	l := &liar{t: t, path: path, file: file}
	written, size, breaches := 1, int64(mib), 0 // of an older kernel
	if seesHoles(file) {
		written, size, breaches = 0, mib-2*page, 1
	}
	if got := l.session(1); got != written {
		t.Errorf("%d MiB were written, want %d", got, written)
	}
	a.stop()
	if got := l.allocated(); got != size || len(im.breaches) != breaches {
		t.Errorf("the file has %d bytes; the agent was told of %v", got, im.breaches)
	}
}

// TestHonestRetries: a sidecar whose connection breaks again and again, with reads under way, gets all its memory. In
// each session it repeats what was not answered.
func TestHonestRetries(t *testing.T) {
	const size = 64 * mib
	path := filepath.Join(t.TempDir(), "s")
	im, file := newImage(size), sparse(t, false)
	a := startAgent(t, path, &agent{src: im})
	defer a.stop()
	if err := unix.Fallocate(int(file.Fd()), 0, 0, size); err != nil {
		t.Fatal(err)
	}
	const sessions, each = 8, size / mib / 8
	for session := range sessions {
		c := helloTo(t, path, "restore")
		l := &liar{t: t, file: file}
		l.must(c, sidecar.Message{Kind: sidecar.KindOpen, Text: checkpointfiles.PagesFileName})
		l.must(c, sidecar.Message{Kind: sidecar.KindRegister, Size: size})
		for i := range each { // the others are repeated in the next session
			l.must(c, chunk(session*each+i))
		}
		for i := session * each; i < min((session+2)*each, size/mib); i++ {
			m := chunk(i)
			if err := c.Send(&m, -1); err != nil {
				t.Fatal(err)
			}
		}
		c.Close()
	}
	got := make([]byte, size)
	if _, err := file.ReadAt(got, 0); err != nil || !bytes.Equal(got, im.data) {
		t.Errorf("memory is not the image: %v", err)
	}
	im.mu.Lock()
	defer im.mu.Unlock()
	if len(im.breaches) > 0 {
		t.Errorf("the agent was told of %v", im.breaches)
	}
}

// chunk is a read of a MiB to its own place.
func chunk(i int) sidecar.Message {
	return sidecar.Message{
		Kind: sidecar.KindRead, ID: uint64(i), Off: int64(i) * mib,
		Ranges: []memmap.FileRange{{Start: uint64(i) * mib, End: uint64(i+1) * mib}},
	}
}

// must sends a request, and fails unless it is answered well.
func (l *liar) must(c *sidecar.Conn, m sidecar.Message) {
	l.t.Helper()
	with := -1
	if m.Kind == sidecar.KindRegister {
		with = int(l.file.Fd())
	}
	if err := c.Send(&m, with); err != nil {
		l.t.Fatal(err)
	}
	var answer sidecar.Message
	if _, err := c.Receive(&answer); err != nil || answer.Err() != nil {
		l.t.Fatalf("message of kind %d: %v, %v", m.Kind, err, answer.Err())
	}
}
