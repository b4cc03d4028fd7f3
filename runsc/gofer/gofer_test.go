package gofer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
	"gvisor.dev/gvisor/pkg/sentry/state/stateipc"
	"gvisor.dev/gvisor/pkg/unet"
	"gvisor.dev/gvisor/pkg/urpc"

	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/capture"
	"diapause.dev/runsc/gofer"
	"diapause.dev/runsc/sidecar"
)

// agent is a listener with the test's own handler.
type agent struct {
	t      *testing.T
	cancel context.CancelFunc
	done   chan error

	pages     capture.Pages
	meanwhile func(context.Context) error // or nil
	taken     chan *capture.Capture
	src       gofer.Source
}

func (a *agent) Checkpoint(o sidecar.Options, conn *sidecar.Conn) error {
	scope := snapshot.WholePod
	if o.Direction == sidecar.RootfsCheckpoint {
		scope = snapshot.RootfsOnly
	}
	c := capture.New(capture.Options{Scope: scope, Pages: a.pages, Chunk: 2 * page, Meanwhile: a.meanwhile})
	a.taken <- c
	if err := conn.Welcome(nil); err != nil {
		return err
	}
	go c.Serve(conn)
	return nil
}

func (a *agent) Restore(sidecar.Options) (gofer.Source, error) {
	if a.src == nil {
		return nil, errors.New("no such restore")
	}
	return a.src, nil
}

func startAgent(t *testing.T, path string, a *agent) *agent {
	t.Helper()
	os.Remove(path)
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	a.t, a.cancel, a.done = t, cancel, make(chan error, 1)
	a.taken = make(chan *capture.Capture, 1)
	go func() { a.done <- gofer.New(l, a, slog.New(slog.DiscardHandler)).Serve(ctx) }()
	return a
}

func (a *agent) stop() {
	a.t.Helper()
	a.cancel()
	if err := <-a.done; err != nil {
		a.t.Error(err)
	}
}

// sentry returns a client like the sentry's, behind a sidecar.
func sentry(t *testing.T, agentSocket string, d sidecar.Direction) (*stateipc.AsyncFileClient, chan error) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := (sidecar.Options{Socket: agentSocket, Request: "r", Token: "t", Direction: d}).Write(dir); err != nil {
		t.Fatal(err)
	}
	opts, err := unix.Open(filepath.Join(dir, sidecar.OptionsFile), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		ended <- sidecar.Run(sidecar.Args{
			SockFD: fds[1], OptionsFD: opts, DebugLogFD: -1,
			Reads: d == sidecar.Restore, Writes: d == sidecar.Checkpoint,
			RootfsReads: d == sidecar.RootfsRestore, RootfsWrites: d == sidecar.RootfsCheckpoint,
		}, slog.New(slog.DiscardHandler))
	}()
	s, err := unet.NewSocket(fds[0])
	if err != nil {
		t.Fatal(err)
	}
	c, err := stateipc.NewAsyncFileClient(urpc.NewClient(s))
	if err != nil {
		t.Fatal(err)
	}
	return c, ended
}

// memory is a memory file of a sentry.
func memory(t *testing.T, size int) (fd int32, bytes []byte) {
	t.Helper()
	fd, m, err := stateio.CreateMappedMemoryFD("test", size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Munmap(m)
		unix.Close(int(fd))
	})
	return fd, m
}

func fill(b []byte, seed uint64) {
	r := rand.NewChaCha8([32]byte{byte(seed)})
	r.Read(b)
}

const page = 4096

// TestCheckpoint saves three files through a sidecar. Some of the pages do not fit the arena.
func TestCheckpoint(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	arena, err := capture.NewArena(capture.ArenaOptions{Warm: 1 << 20, Limit: 3 * page, Dir: t.TempDir(), Encrypt: true})
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	a := startAgent(t, path, &agent{pages: arena})
	defer a.stop()
	c, ended := sentry(t, path, sidecar.Checkpoint)
	fd, mem := memory(t, 16*page)
	fill(mem, 1)

	writeAll(t, c, checkpointfiles.StateFileName, fd, []memmap.FileRange{{Start: 0, End: 5000}})
	writeAll(t, c, checkpointfiles.PagesMetadataFileName, fd, []memmap.FileRange{{Start: 100, End: 200}})
	ranges := []memmap.FileRange{{Start: 2 * page, End: 4 * page}, {Start: 8 * page, End: 11 * page}}
	writeAll(t, c, checkpointfiles.PagesFileName, fd, ranges)
	c.DecRef()
	if err := <-ended; err != nil {
		t.Fatalf("sidecar: %v", err)
	}
	im, err := (<-a.taken).Image(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(im.Small) != 2 || !bytes.Equal(im.Small[0].Data, mem[:5000]) || !bytes.Equal(im.Small[1].Data, mem[100:200]) {
		t.Error("small files are not what was written")
	}
	want := append(bytes.Clone(mem[2*page:4*page]), mem[8*page:11*page]...)
	if got := pagesIn(t, arena, im); !bytes.Equal(got, want) {
		t.Error("pages are not what was written")
	}
	if n := arena.Overflow(); n != 2*page && n != 3*page {
		t.Errorf("overflow of %d bytes, of runs of two, two and one page", n)
	}
}

// pagesIn returns pages.img.
func pagesIn(t *testing.T, arena *capture.Arena, im *capture.Image) (all []byte) {
	t.Helper()
	for _, r := range im.Runs {
		data, _, err := arena.Copied(r)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, data...)
	}
	if int64(len(all)) != im.PagesSize {
		t.Errorf("%d bytes in runs, of %d", len(all), im.PagesSize)
	}
	return all
}

// TestRootfsCheckpoint saves the files of root file systems. A file of a sandbox's state is refused.
func TestRootfsCheckpoint(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	arena, err := capture.NewArena(capture.ArenaOptions{Limit: 1 << 20, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer arena.Close()
	a := startAgent(t, path, &agent{pages: arena})
	defer a.stop()
	c, ended := sentry(t, path, sidecar.RootfsCheckpoint)
	fd, mem := memory(t, 16*page)
	fill(mem, 1)

	refused(t, c, checkpointfiles.StateFileName)
	names := []string{
		checkpointfiles.FSCheckpointManifestFileName, checkpointfiles.FSCheckpointMultiTarFileName,
		checkpointfiles.PagesMetadataFileName,
	}
	for i, name := range names {
		writeAll(t, c, name, fd, []memmap.FileRange{{Start: uint64(i), End: 5000}})
	}
	writeAll(t, c, checkpointfiles.PagesFileName, fd, []memmap.FileRange{{Start: 2 * page, End: 4 * page}})
	c.DecRef()
	if err := <-ended; err != nil {
		t.Fatalf("sidecar: %v", err)
	}
	im, err := (<-a.taken).Image(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range im.Small {
		if f.Name != names[i] || !bytes.Equal(f.Data, mem[i:5000]) {
			t.Errorf("%s is not what was written as %s", f.Name, names[i])
		}
	}
	if want := int64(3*5000 - 3 + 2*page); im.Size() != want || len(im.Small) != len(names) {
		t.Errorf("%d files and %d bytes, want %d and %d", len(im.Small), im.Size(), len(names), want)
	}
}

// TestCheckpointAborted hangs up on the sentry: its write fails, and there is no image.
func TestCheckpointAborted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	a := startAgent(t, path, &agent{pages: capture.Discard{}})
	defer a.stop()
	c, _ := sentry(t, path, sidecar.Checkpoint)
	defer c.DecRef()
	fd, _ := memory(t, page)
	w, err := c.OpenWrite(checkpointfiles.PagesFileName)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	sf, err := w.RegisterSourceFD(fd, page, nil)
	if err != nil {
		t.Fatal(err)
	}
	taken := <-a.taken
	taken.Abort()
	for deadline := time.Now().Add(10 * time.Second); ; { // a write under way may still succeed
		w.AddWrite(0, sf, memmap.FileRange{Start: 0, End: page}, nil)
		if _, err := w.Wait(nil, 1); err != nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the sentry's writes go on succeeding")
		}
	}
	if _, err := taken.Image(t.Context()); !errors.Is(err, capture.ErrIncomplete) {
		t.Errorf("image: %v", err)
	}
}

// TestMeanwhile does something while the sandbox is paused. It begins with the save of the memory, and the
// sandbox waits for it.
func TestMeanwhile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	var ran atomic.Int32
	a := startAgent(t, path, &agent{pages: capture.Discard{}, meanwhile: func(context.Context) error {
		time.Sleep(20 * time.Millisecond)
		ran.Add(1)
		return nil
	}})
	defer a.stop()
	c, _ := sentry(t, path, sidecar.Checkpoint)
	fd, _ := memory(t, 16*page)
	writeAll(t, c, checkpointfiles.StateFileName, fd, []memmap.FileRange{{Start: 0, End: 5000}})
	writeAll(t, c, checkpointfiles.PagesMetadataFileName, fd, nil)
	if n := ran.Load(); n != 0 {
		t.Errorf("done %d times before the sandbox has paused", n)
	}
	writeAll(t, c, checkpointfiles.PagesFileName, fd, []memmap.FileRange{{Start: 0, End: page}})
	if n := ran.Load(); n != 1 {
		t.Errorf("done %d times when the sandbox goes on", n)
	}
	c.DecRef()
	if _, err := (<-a.taken).Image(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestMeanwhileFails: if the work during the pause fails, the save fails and the reason is known.
func TestMeanwhileFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	cause := errors.New("no more room")
	a := startAgent(t, path, &agent{pages: capture.Discard{}, meanwhile: func(context.Context) error { return cause }})
	defer a.stop()
	c, _ := sentry(t, path, sidecar.Checkpoint)
	w, err := c.OpenWrite(checkpointfiles.PagesFileName)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Finalize(); err == nil {
		t.Error("the sentry is told that all is well")
	}
	w.Close()
	c.DecRef()
	if _, err := (<-a.taken).Image(t.Context()); !errors.Is(err, cause) {
		t.Errorf("image: %v", err)
	}
}

// TestMeanwhileAborted hangs up on the sentry before and during the work of the pause. The work ends.
func TestMeanwhileAborted(t *testing.T) {
	for _, begun := range []bool{false, true} {
		t.Run(fmt.Sprint("begun ", begun), func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			started := make(chan struct{})
			a := startAgent(t, path, &agent{pages: capture.Discard{}, meanwhile: func(ctx context.Context) error {
				close(started)
				<-ctx.Done()
				return ctx.Err()
			}})
			defer a.stop()
			c, _ := sentry(t, path, sidecar.Checkpoint)
			defer c.DecRef()
			w, err := c.OpenWrite(checkpointfiles.PagesFileName)
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			fd, _ := memory(t, page)
			if begun {
				if _, err := w.RegisterSourceFD(fd, page, nil); err != nil {
					t.Fatal(err)
				}
				<-started
			}
			taken := <-a.taken
			taken.Abort()
			taken.Wait()
			if _, err := taken.Image(t.Context()); err == nil {
				t.Error("there is an image")
			}
		})
	}
}

// TestCheckpointHostile writes what no sentry would write: its save fails.
func TestCheckpointHostile(t *testing.T) {
	for name, ranges := range map[string][]memmap.FileRange{
		"half a page":          {{Start: 1, End: page}},
		"past the memory file": {{Start: 0, End: 3 * page}},
		"more than the memory": {{Start: 0, End: page}, {Start: 0, End: page}, {Start: 0, End: page}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			a := startAgent(t, path, &agent{pages: capture.Discard{}})
			defer a.stop()
			c, _ := sentry(t, path, sidecar.Checkpoint)
			refused(t, c, "../../etc/passwd")
			w, sf := pagesOf(t, c)
			refused(t, c, checkpointfiles.PagesFileName) // it is open
			if err := save(w, sf, ranges); err == nil {
				t.Error("taken")
			}
			w.Close()
			c.DecRef()
			if _, err := (<-a.taken).Image(t.Context()); !errors.Is(err, capture.ErrIncomplete) {
				t.Errorf("image: %v", err)
			}
		})
	}
}

// refused opens a file that the agent refuses: what is done with it fails.
func refused(t *testing.T, c *stateipc.AsyncFileClient, name string) {
	t.Helper()
	w, err := c.OpenWrite(name)
	if err != nil {
		t.Fatalf("opening fails, of which a sentry dies: %v", err)
	}
	defer w.Close()
	if err := w.Finalize(); err == nil {
		t.Errorf("%s is taken", name)
	}
}

// TestAgentGoneAtOpening: the agent gives up the save, or ends, while the sentry opens its files. Opening must not
// fail, or the sentry dies of it (pkg/sentry/control/state.go): what it then writes fails.
func TestAgentGoneAtOpening(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	a := startAgent(t, path, &agent{pages: capture.Discard{}})
	defer a.stop()
	c, ended := sentry(t, path, sidecar.Checkpoint)
	state, err := c.OpenWrite(checkpointfiles.StateFileName)
	if err != nil {
		t.Fatal(err)
	}
	(<-a.taken).Abort()
	kernel, err := stateio.NewBufWriter(state, page)
	if err != nil {
		t.Fatal(err)
	}
	pages, sf := pagesOf(t, c)
	if err := save(pages, sf, []memmap.FileRange{{Start: 0, End: page}}); err == nil {
		t.Error("pages are saved without an agent")
	}
	if _, err := kernel.Write([]byte("kernel")); err != nil {
		t.Error(err) // it is buffered
	}
	if err := kernel.Close(); err == nil {
		t.Error("the kernel is saved without an agent")
	}
	pages.Close()
	c.DecRef()
	if err := <-ended; err == nil {
		t.Error("the sidecar is content")
	}
}

// save writes ranges and finishes the file. It returns the first error.
func save(w stateio.AsyncWriter, sf stateio.SourceFile, ranges []memmap.FileRange) error {
	for _, r := range ranges {
		w.AddWrite(0, sf, r, nil)
		cs, err := w.Wait(nil, 1)
		if err != nil {
			return err
		}
		if cs[0].Err != nil || cs[0].N != r.Length() {
			return fmt.Errorf("write of %v: %+v", r, cs[0])
		}
	}
	return w.Finalize()
}

// failing is a capture.Pages that takes nothing.
type failing struct {
	capture.Discard
	err error
}

func (f *failing) Capture(*capture.Batch) error { return f.err }

// TestCheckpointFails: pages that cannot be copied fail the save, and the reason is known. The sentry's writes are done
// before their pages are copied, so it learns of that when it finishes the file.
func TestCheckpointFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	cause := errors.New("no space left")
	a := startAgent(t, path, &agent{pages: &failing{err: cause}})
	defer a.stop()
	c, _ := sentry(t, path, sidecar.Checkpoint)
	w, sf := pagesOf(t, c)
	if err := save(w, sf, []memmap.FileRange{{Start: 0, End: page}, {Start: page, End: 2 * page}}); err == nil {
		t.Error("the sentry is told that all is well")
	}
	w.Close()
	c.DecRef()
	taken := <-a.taken
	if _, err := taken.Image(t.Context()); !errors.Is(err, capture.ErrIncomplete) {
		t.Errorf("image: %v", err)
	}
	if !errors.Is(taken.Err(), cause) {
		t.Errorf("reason: %v", taken.Err())
	}
}

func writeAll(t *testing.T, c *stateipc.AsyncFileClient, name string, fd int32, ranges []memmap.FileRange) {
	t.Helper()
	w, err := c.OpenWrite(name)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	sf, err := w.RegisterSourceFD(fd, 16*page, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := save(w, sf, ranges); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
}

// image is a gofer.Source with one file in memory. If gate is set, it is called before each read.
type image struct {
	data []byte
	gate func(ctx context.Context, off int64) error

	pace gofer.Pace

	mu      sync.Mutex
	reads   map[int64]int
	awaited []int64 // offsets of reads that somebody waited for
	prompt  []bool  // what Pace was told
	ends    []gofer.End

	account  *gofer.Account // of this agent
	breaches []error
	failures []error
}

func (im *image) Account() *gofer.Account { return im.account }

func (im *image) Breach(err error) {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.breaches = append(im.breaches, err)
}

func (im *image) Failed(_ string, err error) {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.failures = append(im.failures, err)
}

func (im *image) Size(file string) (int64, error) {
	if file != checkpointfiles.PagesFileName {
		return 0, fmt.Errorf("no file %q", file)
	}
	return int64(len(im.data)), nil
}

func (im *image) ReadAt(ctx context.Context, _ string, off int64, p []byte) error {
	if im.gate != nil {
		if err := im.gate(ctx, off); err != nil {
			return err
		}
	}
	im.mu.Lock()
	defer im.mu.Unlock()
	im.reads[off]++
	copy(p, im.data[off:])
	return nil
}

func (im *image) Asked(_ string, off, _ int64, why gofer.Need) {
	im.mu.Lock()
	defer im.mu.Unlock()
	if why != gofer.Ahead {
		im.awaited = append(im.awaited, off)
	}
}

func (im *image) Pace(_ string, _, _ int64, prompt bool) gofer.Pace {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.prompt = append(im.prompt, prompt)
	return im.pace
}

func (im *image) Rest(time.Duration) time.Duration { return 0 }

func (im *image) Ended(e gofer.End, _ error) {
	im.mu.Lock()
	defer im.mu.Unlock()
	im.ends = append(im.ends, e)
}

func newImage(size int) *image {
	im := &image{data: make([]byte, size), reads: make(map[int64]int), account: &gofer.Account{}}
	fill(im.data, 2)
	return im
}

// load reads the whole file through c into the memory file, in blocks of n bytes. It returns the first error.
func load(c *stateipc.AsyncFileClient, fd int32, size, n int) error {
	r, err := c.OpenRead(checkpointfiles.PagesFileName)
	if err != nil {
		return err
	}
	defer r.Close()
	df, err := r.RegisterDestinationFD(fd, uint64(size), nil)
	if err != nil {
		return err
	}
	free := make([]int, 0, r.MaxParallel())
	for i := range r.MaxParallel() {
		free = append(free, i)
	}
	next, under := 0, 0
	for next < size || under > 0 {
		for next < size && len(free) > 0 {
			r.AddRead(free[0], int64(next), df, memmap.FileRange{Start: uint64(next), End: uint64(next + n)}, nil)
			free, next, under = free[1:], next+n, under+1
		}
		cs, err := r.Wait(nil, 1)
		if err != nil {
			return err
		}
		for _, c := range cs {
			if c.Err != nil {
				return c.Err
			}
			free, under = append(free, c.ID), under-1
		}
	}
	return nil
}

// hangUp ends the sentry's use of a sidecar, and waits until that has ended.
func hangUp(t *testing.T, c *stateipc.AsyncFileClient, ended <-chan error) {
	t.Helper()
	c.DecRef()
	if err := <-ended; err != nil {
		t.Errorf("sidecar: %v", err)
	}
}

// openPages opens the file with the memory, and registers a place for it.
func openPages(t *testing.T, c *stateipc.AsyncFileClient, fd int32, size uint64) (stateio.AsyncReader,
	stateio.DestinationFile,
) {
	t.Helper()
	r, err := c.OpenRead(checkpointfiles.PagesFileName)
	if err != nil {
		t.Fatal(err)
	}
	df, err := r.RegisterDestinationFD(fd, size, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r, df
}

// TestRestore loads a file, and reads past its end: that fails, because a sandbox cannot live without its pages.
func TestRestore(t *testing.T) {
	const size = 64 * page
	path := filepath.Join(t.TempDir(), "s")
	im := newImage(size)
	a := startAgent(t, path, &agent{src: im})
	defer a.stop()
	c, ended := sentry(t, path, sidecar.Restore)
	fd, mem := memory(t, size)
	if err := load(c, fd, size, 2*page); err != nil || !bytes.Equal(mem, im.data) {
		t.Errorf("memory is not the image: %v", err)
	}
	if err := pastTheEnd(c, fd, size); err != nil {
		t.Error(err)
	}
	im.mu.Lock()
	if len(im.failures) == 0 || !strings.Contains(im.failures[0].Error(), "where the file has") {
		t.Errorf("reported: %v", im.failures)
	}
	im.mu.Unlock()
	if _, err := c.OpenRead("secret"); err == nil {
		t.Error("opened a file that the image does not have")
	}
	hangUp(t, c, ended)
}

// TestAwaitedFirst: what the sandbox waits for passes what it loads ahead of need, and the source is told which is
// which.
func TestAwaitedFirst(t *testing.T) {
	const size = 64 * page
	path := filepath.Join(t.TempDir(), "s")
	im := newImage(size)
	im.pace = gofer.Pace{Pause: 2 * time.Second}
	a := startAgent(t, path, &agent{src: im})
	defer a.stop()
	c, ended := sentry(t, path, sidecar.Restore)
	fd, mem := memory(t, size)
	r, df := openPages(t, c, fd, size)
	for id, off := range []int64{0, page, 40 * page} { // the second has to wait
		r.AddRead(id, off, df, memmap.FileRange{Start: uint64(off), End: uint64(off) + page}, nil)
	}
	var done []int
	for len(done) < 3 {
		cs, err := r.Wait(nil, 1)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range cs {
			done = append(done, c.ID)
		}
	}
	if done[2] != 1 || !bytes.Equal(mem[40*page:41*page], im.data[40*page:41*page]) {
		t.Errorf("reads are done in the order %v, want 1 to be the last", done)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	hangUp(t, c, ended)
	im.mu.Lock()
	defer im.mu.Unlock()
	if !slices.Equal(im.awaited, []int64{40 * page}) {
		t.Errorf("awaited at %v, want at %d", im.awaited, 40*page)
	}
	if slices.Contains(im.prompt, true) {
		t.Error("a sandbox with one lane is taken for a prompt one")
	}
}

// TestTwoLanes: a sandbox that opens the file with its memory twice says by which it reads whether somebody waits, and
// the place of a read does not count.
func TestTwoLanes(t *testing.T) {
	const size = 64 * page
	path := filepath.Join(t.TempDir(), "s")
	im := newImage(size)
	a := startAgent(t, path, &agent{src: im})
	defer a.stop()
	c, ended := sentry(t, path, sidecar.Restore)
	fd, mem := memory(t, size)
	ahead, toAhead := openPages(t, c, fd, size)
	awaited, toAwaited := openPages(t, c, fd, size)
	read := func(r stateio.AsyncReader, df stateio.DestinationFile, off int64) {
		r.AddRead(0, off, df, memmap.FileRange{Start: uint64(off), End: uint64(off) + page}, nil)
		if cs, err := r.Wait(nil, 1); err != nil || len(cs) != 1 || cs[0].N != page {
			t.Errorf("read at %d: %v, %v", off, cs, err)
		}
		if !bytes.Equal(mem[off:off+page], im.data[off:off+page]) {
			t.Errorf("the page at %d is not that of the image", off)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	read(ahead, toAhead, 40*page)
	read(awaited, toAwaited, 0)
	hangUp(t, c, ended)
	im.mu.Lock()
	defer im.mu.Unlock()
	if !slices.Equal(im.awaited, []int64{0}) || len(im.prompt) == 0 || slices.Contains(im.prompt, false) {
		t.Errorf("awaited at %v, want at 0; prompt %v", im.awaited, im.prompt)
	}
}

// TestReminder: what was asked for ahead of need, and would have to wait, is read once the sandbox reminds of it.
func TestReminder(t *testing.T) {
	const size = 64 * page
	path := filepath.Join(t.TempDir(), "s")
	im := newImage(size)
	im.pace = gofer.Pace{Pause: time.Hour}
	a := startAgent(t, path, &agent{src: im})
	defer a.stop()
	c, ended := sentry(t, path, sidecar.Restore)
	fd, mem := memory(t, size)
	ahead, to := openPages(t, c, fd, size)
	wasteFD, _ := memory(t, page)
	awaited, waste := openPages(t, c, wasteFD, page)
	for id, off := range []int64{0, 7 * page} {
		ahead.AddRead(id, off, to, memmap.FileRange{Start: uint64(off), End: uint64(off) + page}, nil)
	}
	one := func(r stateio.AsyncReader, id int) {
		t.Helper()
		if cs, err := r.Wait(nil, 1); err != nil || len(cs) != 1 || cs[0].ID != id || cs[0].N != page {
			t.Errorf("completions %+v, %v; want one of %d", cs, err, id)
		}
	}
	one(ahead, 0)
	awaited.AddRead(3, 7*page, waste, memmap.FileRange{End: page}, nil)
	one(awaited, 3)
	one(ahead, 1)
	if !bytes.Equal(mem[7*page:8*page], im.data[7*page:8*page]) {
		t.Error("the page is not that of the image")
	}
	for _, r := range []stateio.AsyncReader{ahead, awaited} {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
	hangUp(t, c, ended)
	im.mu.Lock()
	defer im.mu.Unlock()
	if !slices.Equal(im.awaited, []int64{7 * page, 7 * page}) { // the read, and the reminder
		t.Errorf("awaited at %v, want twice at %d", im.awaited, 7*page)
	}
}

func pastTheEnd(c *stateipc.AsyncFileClient, fd int32, size int64) error {
	r, err := c.OpenRead(checkpointfiles.PagesFileName)
	if err != nil {
		return err
	}
	defer r.Close()
	df, err := r.RegisterDestinationFD(fd, uint64(size), nil)
	if err != nil {
		return err
	}
	r.AddRead(0, size-page, df, memmap.FileRange{Start: 0, End: 2 * page}, nil)
	r.AddRead(1, size+page, df, memmap.FileRange{Start: 0, End: page}, nil)
	cs, err := r.Wait(nil, 2)
	if !errors.Is(err, unix.EIO) {
		return fmt.Errorf("pages past the end: error %w", err)
	}
	for _, c := range cs {
		if want := uint64((1 - c.ID) * page); c.Err != io.EOF || c.N != want {
			return fmt.Errorf("read %d past the end: %d bytes, %w", c.ID, c.N, c.Err)
		}
	}
	return nil
}

// TestRestoreSurvivesAgents ends the agent again and again while the sandbox loads. Every byte arrives. No byte
// that was reported to the sandbox is written again.
func TestRestoreSurvivesAgents(t *testing.T) {
	const size, block = 256 * page, page
	path := filepath.Join(t.TempDir(), "s")
	im := newImage(size)
	stuck := make(chan struct{}, 1)
	var served int
	im.gate = func(ctx context.Context, _ int64) error {
		im.mu.Lock()
		served++
		hang := served%40 == 0
		im.mu.Unlock()
		if !hang {
			return nil
		}
		select {
		case stuck <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return ctx.Err()
	}
	a := startAgent(t, path, &agent{src: im})
	c, ended := sentry(t, path, sidecar.Restore)
	fd, mem := memory(t, size)
	loaded := make(chan error, 1)
	go func() { loaded <- load(c, fd, size, block) }()
	agents := 1
	for done := false; !done; {
		select {
		case <-stuck:
			a.stop()
			im.account = &gofer.Account{}
			time.Sleep(20 * time.Millisecond) // no agent listens
			a = startAgent(t, path, &agent{src: im})
			agents++
		case err := <-loaded:
			if err != nil || !bytes.Equal(mem, im.data) {
				t.Errorf("memory is not the image: %v", err)
			}
			done = true
		case <-time.After(20 * time.Second):
			t.Fatal("the load hangs")
		}
	}
	hangUp(t, c, ended)
	im.awaitLoaded(t)
	a.stop()
	if agents < 3 {
		t.Errorf("only %d agents", agents)
	}
}

// awaitLoaded waits until a session has ended with everything loaded.
func (im *image) awaitLoaded(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		im.mu.Lock()
		loaded := slices.Contains(im.ends, gofer.Loaded)
		im.mu.Unlock()
		if loaded {
			return
		}
	}
	t.Error("no session ended with everything loaded")
}

// TestRestoreFails passes an error of the source on to the sandbox. The session serves on.
func TestRestoreFails(t *testing.T) {
	const size = 4 * page
	path := filepath.Join(t.TempDir(), "s")
	im := newImage(size)
	im.gate = func(_ context.Context, off int64) error {
		if off == page {
			return errors.New("one bit is wrong")
		}
		return nil
	}
	a := startAgent(t, path, &agent{src: im})
	defer a.stop()
	c, _ := sentry(t, path, sidecar.Restore)
	fd, mem := memory(t, size)
	if err := load(c, fd, size, page); !errors.Is(err, unix.EIO) {
		t.Errorf("load: %v", err)
	}
	if !bytes.Equal(mem[page:2*page], make([]byte, page)) {
		t.Error("bytes were written for a read that failed")
	}
	c.DecRef()
}

// TestRefused runs a sidecar whose request the agent does not know.
func TestRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	a := startAgent(t, path, &agent{})
	defer a.stop()
	c, ended := sentry(t, path, sidecar.Restore)
	defer c.DecRef()
	if refused := new(sidecar.RefusedError); !errors.As(<-ended, &refused) {
		t.Error("the sidecar was not refused")
	}
}

// TestHostileSidecar sends what no sidecar would send. Nothing is written outside the registered memory, and the
// listener serves on.
func TestHostileSidecar(t *testing.T) {
	fd, _ := memory(t, 2*page)
	one := []memmap.FileRange{{Start: 0, End: page}}
	for name, script := range map[string][]sidecar.Message{
		"read of what is not open": {{Kind: sidecar.KindRead, Ranges: one}},
		"open of an unknown file":  {{Kind: sidecar.KindOpen, Text: "../x"}},
		"file number out of range": {{
			Kind: sidecar.KindOpen, ID: sidecar.MaxFiles,
			Text: checkpointfiles.PagesFileName,
		}},
		"register of too much": {{Kind: sidecar.KindRegister, Size: 1 << 60}},
		"register twice":       {{Kind: sidecar.KindRegister, Size: page}, {Kind: sidecar.KindRegister, Size: page}},
		"read into what is not mapped": {
			{Kind: sidecar.KindOpen, Text: checkpointfiles.PagesFileName},
			{Kind: sidecar.KindRead, Ranges: one},
		},
		"read past the memory file": {
			{Kind: sidecar.KindOpen, Text: checkpointfiles.PagesFileName},
			{Kind: sidecar.KindRegister, Size: page},
			{Kind: sidecar.KindRead, Ranges: []memmap.FileRange{{Start: page, End: 2 * page}}},
		},
		"read of nothing": {
			{Kind: sidecar.KindOpen, Text: checkpointfiles.PagesFileName},
			{Kind: sidecar.KindRegister, Size: page},
			{Kind: sidecar.KindRead},
		},
		"an answer instead of question": {{Kind: sidecar.KindCompleted}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			a := startAgent(t, path, &agent{src: newImage(4 * page)})
			defer a.stop()
			c := helloTo(t, path, "restore")
			defer c.Close()
			var last sidecar.Message
			for _, m := range script {
				with := -1
				if m.Kind == sidecar.KindRegister {
					with = int(fd)
				}
				if err := c.Send(&m, with); err != nil {
					return // hung up on
				}
				if _, err := c.Receive(&last); err != nil {
					return
				}
			}
			if last.Err() == nil {
				t.Errorf("answered with %+v", last)
			}
		})
	}
}
