package sidecar

import (
	"errors"
	"io"
	"log/slog"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"
)

// TestFailedPagesFailTheWait answers two reads before the sentry looks. One of them has failed.
func TestFailedPagesFailTheWait(t *testing.T) {
	damaged, ended := &Message{Text: "the chunk is damaged"}, &Message{EOF: true}
	for _, tt := range []struct {
		name, path string
		answer     *Message
		read, want error // of the read that has failed, and of the wait
	}{
		{"pages", checkpointfiles.PagesFileName, damaged, unix.EIO, unix.EIO},
		{"pages that the snapshot has not", checkpointfiles.PagesFileName, ended, io.EOF, unix.EIO},
		{"kernel state", checkpointfiles.StateFileName, damaged, unix.EIO, nil}, // its reader looks at each completion
		{"end of the kernel state", checkpointfiles.StateFileName, ended, io.EOF, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRelayer(Options{}, slog.New(slog.DiscardHandler), nil)
			f := r.newFileLocked(tt.path)
			f.complete(&read{file: f, slot: 0}, &Message{})
			f.complete(&read{file: f, slot: 1}, tt.answer)
			cs, err := f.Wait(nil, 1)
			if !errors.Is(err, tt.want) {
				t.Errorf("error %v, want %v", err, tt.want)
			}
			if len(cs) != 2 || cs[0].Err != nil || !errors.Is(cs[1].Err, tt.read) {
				t.Errorf("completions %+v", cs)
			}
		})
	}
}
