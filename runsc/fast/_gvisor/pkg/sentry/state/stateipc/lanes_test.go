package stateipc

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/hostarch"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
	"gvisor.dev/gvisor/pkg/unet"
	"gvisor.dev/gvisor/pkg/urpc"
)

// parallel is how many reads each lane of the tests has.
const parallel = 2

// heldFile is a file whose reads the test completes.
type heldFile struct {
	stateio.AsyncReader // the methods below are all that is called
	reads               chan int
	done                chan stateio.Completion
	registered          int // memory files
}

func (f *heldFile) Close() error                    { return nil }
func (f *heldFile) MaxReadBytes() uint64            { return hostarch.PageSize }
func (f *heldFile) MaxRanges() int                  { return 1 }
func (f *heldFile) MaxParallel() int                { return parallel }
func (f *heldFile) NeedRegisterDestinationFD() bool { return true }

func (f *heldFile) RegisterDestinationFD(int32, uint64, []stateio.ClientFileRangeSetting) (stateio.DestinationFile,
	error,
) {
	f.registered++
	return 0, nil
}

func (f *heldFile) AddRead(id int, _ int64, _ stateio.DestinationFile, _ memmap.FileRange, _ []byte) {
	f.reads <- id
}

func (f *heldFile) Wait(cs []stateio.Completion, least int) ([]stateio.Completion, error) {
	return stateio.CompletionChanWait(f.done, cs, least)
}

// complete waits for a read and completes it.
func (f *heldFile) complete() {
	f.done <- stateio.Completion{ID: <-f.reads, N: hostarch.PageSize}
}

// heldFiles opens at most so many files.
type heldFiles struct {
	most int
	all  []*heldFile
}

func (s *heldFiles) Destroy() {}

func (s *heldFiles) OpenWrite(string) (stateio.AsyncWriter, error) { return nil, errors.ErrUnsupported }

func (s *heldFiles) OpenRead(string) (stateio.AsyncReader, error) {
	if len(s.all) >= s.most {
		return nil, errors.New("too many files")
	}
	f := &heldFile{reads: make(chan int, parallel), done: make(chan stateio.Completion, parallel)}
	s.all = append(s.all, f)
	return f, nil
}

// serve returns a client of a server of these files, and what ends the server.
func serve(t *testing.T, files AsyncFileServerImpl) (c *AsyncFileClient, end func()) {
	t.Helper()
	ours, theirs, err := unet.SocketPair(false)
	if err != nil {
		t.Fatal(err)
	}
	fs, err := NewAsyncFileServer(files)
	if err != nil {
		t.Fatal(err)
	}
	s := urpc.NewServer()
	s.Register(fs)
	s.StartHandling(theirs)
	if c, err = NewAsyncFileClient(urpc.NewClient(ours)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.DecRef)
	return c, func() { theirs.Shutdown() }
}

// twoLanes returns a reader with two lanes, the server's file of each, and a place to read to.
func twoLanes(t *testing.T) (l *Lanes, files *heldFiles, read func(id int, awaited bool), end func()) {
	t.Helper()
	files = &heldFiles{most: 2}
	c, end := serve(t, files)
	r, err := c.OpenReadLanes("pages")
	if err != nil {
		t.Fatal(err)
	}
	l, ok := r.(*Lanes)
	if !ok || l.MaxParallel() != 2*parallel || l.MaxAwaited() != parallel {
		t.Fatalf("%T has not two lanes of %d", r, parallel)
	}
	memory, err := unix.MemfdCreate("memory", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(memory)
	if err := unix.Ftruncate(memory, hostarch.PageSize); err != nil {
		t.Fatal(err)
	}
	dst, err := l.RegisterDestinationFD(int32(memory), hostarch.PageSize, nil)
	if err != nil {
		t.Fatal(err)
	}
	return l, files, func(id int, awaited bool) {
		l.Use(awaited)
		l.AddRead(id, 0, dst, memmap.FileRange{End: hostarch.PageSize}, nil)
	}, end
}

// wants waits, and compares the IDs of what has been completed.
func wants(t *testing.T, l *Lanes, ids ...int) {
	t.Helper()
	cs, err := l.Wait(nil, min(1, len(ids)))
	if err != nil || len(cs) != len(ids) {
		t.Fatalf("completions %v, %v; want %v", cs, err, ids)
	}
	for i, c := range cs {
		if c.ID != ids[i] || c.N != hostarch.PageSize || c.Err != nil {
			t.Errorf("completion %+v, want of %d", c, ids[i])
		}
	}
}

// TestAwaitedPasses: a read that somebody waits for is answered while others are held, and the other way around.
func TestAwaitedPasses(t *testing.T) {
	l, files, read, _ := twoLanes(t)
	ahead, awaited := files.all[0], files.all[1]
	read(3, false)
	read(0, false)
	read(2, true)
	go awaited.complete()
	wants(t, l, 2)
	read(1, true)
	go ahead.complete()
	wants(t, l, 3)
	go ahead.complete()
	wants(t, l, 0)
	for range 100 { // IDs are used again
		read(2, false)
		go ahead.complete()
		wants(t, l, 2)
	}
	go awaited.complete()
	wants(t, l, 1)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

// TestInterrupt: a Wait returns when there is something new to read, and loses nothing.
func TestInterrupt(t *testing.T) {
	l, files, read, _ := twoLanes(t)
	read(0, false)
	go l.Interrupt()
	if cs, err := l.Wait(nil, 1); len(cs) > 0 || err != nil {
		t.Errorf("completions %v, %v", cs, err)
	}
	read(1, true)
	go files.all[1].complete()
	wants(t, l, 1)
	go files.all[0].complete()
	wants(t, l, 0)
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	l.Interrupt()
}

// TestServerLost: a server that goes away while both lanes wait for it is an error.
func TestServerLost(t *testing.T) {
	l, files, read, end := twoLanes(t)
	read(0, false)
	read(1, true)
	go func() {
		for _, f := range files.all {
			<-f.reads
		}
		end()
	}()
	if cs, err := l.Wait(nil, 1); err == nil {
		t.Errorf("completions %v of a server that has gone", cs)
	}
	l.Close()
}

// TestOneLane: a server that opens the file once is read from as usual.
func TestOneLane(t *testing.T) {
	files := &heldFiles{most: 1}
	c, _ := serve(t, files)
	r, err := c.OpenReadLanes("pages")
	if _, ok := r.(*asyncReadWriter); !ok || err != nil {
		t.Fatalf("%T, %v", r, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	files.most = 0
	if _, err := c.OpenReadLanes("pages"); err == nil {
		t.Error("a file that the server does not have was opened")
	}
}
