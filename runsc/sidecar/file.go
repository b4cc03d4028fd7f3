package sidecar

import (
	"io"
	"slices"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
	"gvisor.dev/gvisor/pkg/sentry/state/stateio"
)

// readFile is an image file that the sentry reads. It implements stateio.AsyncReader. The agent, never the
// sidecar, writes the bytes into the memory file.
type readFile struct {
	relayer *relayer
	number  uint32
	path    string
	lasting bool       // its reads wait for an agent as long as the sandbox lives
	awaited bool       // somebody waits for its reads: a sentry with two lanes opens its pages twice (runsc/fast)
	opened  chan error // the agent's first answer; capacity 1
	done    chan stateio.Completion
}

func (f *readFile) open() *Message {
	return &Message{Kind: KindOpen, ID: uint64(f.number), Text: f.path}
}

// Close implements stateio.AsyncReader.Close. The agent forgets the file with the session.
func (f *readFile) Close() error { return nil }

// MaxReadBytes implements stateio.AsyncReader.MaxReadBytes.
func (f *readFile) MaxReadBytes() uint64 {
	if f.lasting && !f.awaited {
		return f.relayer.opts.readBytes()
	}
	return MaxRead
}

// MaxRanges implements stateio.AsyncReader.MaxRanges.
func (f *readFile) MaxRanges() int { return MaxRanges }

// MaxParallel implements stateio.AsyncReader.MaxParallel. It is small, because reads that the sentry waits for
// queue behind those already sent.
func (f *readFile) MaxParallel() int { return parallel }

// parallel is how many reads of a file may be under way: enough to keep two cores busy.
const parallel = 4

// NeedRegisterDestinationFD implements stateio.AsyncReader.NeedRegisterDestinationFD.
func (f *readFile) NeedRegisterDestinationFD() bool { return true }

// RegisterDestinationFD implements stateio.AsyncReader.RegisterDestinationFD.
func (f *readFile) RegisterDestinationFD(fd int32, size uint64,
	_ []stateio.ClientFileRangeSetting,
) (stateio.DestinationFile, error) {
	return f.relayer.register(int(fd), size)
}

// AddRead implements stateio.AsyncReader.AddRead.
func (f *readFile) AddRead(id int, off int64, df stateio.DestinationFile, fr memmap.FileRange, mapped []byte) {
	f.add(id, off, df, []memmap.FileRange{fr}, stateio.LocalClientMapping(mapped))
}

// AddReadv implements stateio.AsyncReader.AddReadv.
func (f *readFile) AddReadv(id int, off int64, _ uint64, df stateio.DestinationFile, frs []memmap.FileRange,
	mapped []unix.Iovec,
) {
	f.add(id, off, df, frs, stateio.LocalClientMappings(mapped))
}

// add allocates the ranges and passes the read on.
func (f *readFile) add(id int, off int64, df stateio.DestinationFile, frs []memmap.FileRange,
	mapped stateio.LocalClientRanges,
) {
	rd := &read{
		file: f,
		slot: id,
		m:    Message{Kind: KindRead, File: f.number, Dest: df.(uint32), Off: off, Ranges: frs},
	}
	if err := f.relayer.allocate(rd, mapped); err != nil {
		f.complete(rd, &Message{Text: err.Error()})
		return
	}
	f.relayer.start(rd)
}

// complete passes the agent's answer on. It never blocks: done has room for every read that can be under way.
func (f *readFile) complete(rd *read, m *Message) {
	c := stateio.Completion{ID: rd.slot, N: min(m.Size, rd.m.Total())}
	switch {
	case m.Text != "":
		f.relayer.log.Error("read failed", "file", f.path, "offset", rd.m.Off, "error", m.Text)
		c.Err = unix.EIO
	case m.EOF:
		c.Err = io.EOF
	case c.N < rd.m.Total():
		c.Err = unix.EIO
	}
	f.done <- c
}

// Wait implements stateio.AsyncReader.Wait. Once a read of pages has failed, Wait fails as a whole. If gVisor's loader
// is told of that read together with others that have succeeded, it does not wake those who wait for the others, and
// the sandbox never ends (pkg/sentry/pgalloc, AsyncPagesFileLoad.main). If Wait fails, it wakes all.
func (f *readFile) Wait(cs []stateio.Completion, minCompletions int) ([]stateio.Completion, error) {
	cs, err := stateio.CompletionChanWait(f.done, cs, minCompletions)
	if err == nil && f.lasting && slices.ContainsFunc(cs, failed) {
		err = unix.EIO
	}
	return cs, err
}

func failed(c stateio.Completion) bool { return c.Err != nil }
