package capture_test

import (
	"math"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"

	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/capture"
	"diapause.dev/runsc/sidecar"
)

const (
	page   = 4096
	memory = 4 * page // size of the memory file that the fuzzed sidecar has
)

// script turns fuzzed bytes into what a sidecar sends.
type script struct{ b []byte }

func (s *script) next() byte {
	if len(s.b) == 0 {
		return 0
	}
	n := s.b[0]
	s.b = s.b[1:]
	return n
}

// number returns one of the numbers at which something could break.
func (s *script) number() uint64 {
	n := s.next()
	if n < 200 {
		return uint64(n % 8)
	}
	return [...]uint64{page - 1, page, 2 * page, memory, memory + 1, 1 << 20, 1 << 42, math.MaxUint64}[n%8]
}

func (s *script) message() (m sidecar.Message, withFile bool) {
	kinds := [...]sidecar.Kind{
		sidecar.KindOpen, sidecar.KindRegister, sidecar.KindWrite, sidecar.KindFinish, sidecar.KindRead,
		sidecar.KindCompleted, sidecar.KindHello, 0,
	}
	names := [...]string{
		checkpointfiles.PagesFileName, checkpointfiles.StateFileName, checkpointfiles.PagesMetadataFileName, "x",
	}
	k := s.next()
	m = sidecar.Message{Kind: kinds[k%8], ID: s.number(), File: uint32(s.number()), Dest: uint32(s.number())}
	switch m.Kind {
	case sidecar.KindOpen:
		m.Text = names[s.next()%4]
	case sidecar.KindRegister:
		m.Size = s.number()
	case sidecar.KindWrite:
		for range s.next() % 4 {
			start := s.number()
			m.Ranges = append(m.Ranges, memmap.FileRange{Start: start, End: start + s.number()})
		}
	}
	return m, k&8 != 0
}

// FuzzServe sends what a sidecar that has been taken over could send. Serve ends when the sidecar hangs up, and all
// that is taken lies within the memory files that were registered.
func FuzzServe(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 9, 0, 0, 0, 203, 2, 0, 0, 0, 1, 0, 201, 3, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 0, 1, 9, 0, 0, 0, 203, 2, 0, 0, 0, 2, 1, 7, 200, 203, 3, 0, 0, 0})
	fd, err := unix.MemfdCreate("fuzz", unix.MFD_CLOEXEC)
	if err != nil {
		f.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Ftruncate(fd, memory); err != nil {
		f.Fatal(err)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, b []byte) {
		ours, theirs := pair(t)
		arena, err := capture.NewArena(capture.ArenaOptions{Limit: 2 * page, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		defer arena.Close()
		c := capture.New(capture.Options{Scope: snapshot.WholePod, Pages: arena, Chunk: 2 * page})
		go c.Serve(ours)
		drained := make(chan struct{})
		go drain(theirs, drained)
		var registered uint64
		defer time.AfterFunc(30*time.Second, func() { panic("Serve does not end") }).Stop()
		for s := (&script{b}); len(s.b) > 0; {
			m, withFile := s.message()
			with := -1
			if withFile {
				with = fd
			}
			if m.Kind == sidecar.KindRegister && withFile && registered < 1<<60 {
				registered += min(m.Size, 1<<60)
			}
			if theirs.Send(&m, with) != nil {
				break // hung up on
			}
		}
		theirs.Unix().CloseWrite()
		c.Wait()
		theirs.Close()
		<-drained
		im, err := c.Image(t.Context())
		if err != nil {
			return
		}
		checkImage(t, im, arena, registered)
	})
}

// checkImage checks that an image holds what its runs say, and not more than was registered.
func checkImage(t *testing.T, im *capture.Image, arena *capture.Arena, registered uint64) {
	t.Helper()
	var total int64
	for _, r := range im.Runs {
		total += r.Len
		if r.Len < 1 || r.Len > 2*page {
			t.Errorf("a run of %d bytes", r.Len)
		}
		if _, _, err := arena.Copied(r); err != nil {
			t.Error(err)
		}
	}
	if total != im.PagesSize || uint64(total) > registered {
		t.Errorf("pages.img of %d bytes has %d bytes in runs, of %d registered", im.PagesSize, total, registered)
	}
}

// drain receives answers until the other end hangs up.
func drain(c *sidecar.Conn, done chan<- struct{}) {
	defer close(done)
	var m sidecar.Message
	for {
		f, err := c.Receive(&m)
		if err != nil {
			return
		}
		f.Drop()
	}
}

// pair returns two connected ends.
func pair(t *testing.T) (a, b *sidecar.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conn := func(fd int) *sidecar.Conn {
		f := os.NewFile(uintptr(fd), "socket")
		defer f.Close()
		c, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		return sidecar.NewConn(c.(*net.UnixConn))
	}
	return conn(fds[0]), conn(fds[1])
}
