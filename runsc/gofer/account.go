package gofer

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"diapause.dev/runsc"
	"diapause.dev/runsc/sidecar"
)

// ErrBreach means that a sidecar has asked for what no honest one asks for.
var ErrBreach = errors.New("the sandbox's sidecar is not to be trusted")

const (
	// maxSessions is how many sessions a restore may have with one agent. The connection of an honest sidecar ends
	// with the agent's process.
	maxSessions = 8
	// sessionSlack is what each session adds to what may be written, in bytes: the sidecar asks again for what an earlier
	// session has written without telling it. It has 4 reads of a file under way at most.
	sessionSlack = sidecar.MaxFiles * 4 * sidecar.MaxRead
	// filesBurst is how often the files of containers may be read at once, and filesAgain is the time in which they may
	// be read once more: a container that is started again reads its files again. The kubelet waits at least so long
	// from the second restart on.
	filesBurst = 4
	filesAgain = 10 * time.Second
)

// Account bounds what one restore has the agent write into memory files, over all its sessions. The kernel charges a
// page to whoever allocates it. An honest sidecar has allocated what it asks for, so the pod is charged. One that was
// taken over leaves that to the agent. The zero value is ready. Its methods may be called concurrently.
type Account struct {
	mu       sync.Mutex
	files    map[string]int64 // sizes of the image files that were opened, in bytes
	size     int64            // their sum, of PagesFile once and of all others twice
	written  int64            // bytes
	sessions int64
	again    bool      // files of containers may be read again: see filesAgain
	counted  time.Time // written has been lessened up to then
	breach   error     // the first one
}

// begin admits a session.
func (a *Account) begin(again bool) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sessions == maxSessions {
		a.breakLocked(fmt.Errorf("%w: it has begun more than %d sessions", ErrBreach, maxSessions))
	}
	if a.breach == nil {
		a.sessions, a.again = a.sessions+1, again
	}
	return a.breach
}

// opened notes the size of an image file. The small files may be read twice: the repaired build of runsc may begin to
// load the kernel's state, give that up, and begin anew.
func (a *Account) opened(name string, size int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.files == nil {
		a.files = make(map[string]int64)
	}
	more := size - a.files[name]
	if more <= 0 {
		return
	}
	a.files[name] = size
	a.size += more
	if name != runsc.PagesFile {
		a.size += more
	}
}

// spend notes that n bytes will be written. It refuses them if that is more than the restore may have.
func (a *Account) spend(n int64, now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.breach != nil {
		return a.breach
	}
	most := a.size + a.sessions*sessionSlack
	if a.again {
		a.forgiveLocked(now)
		most += (filesBurst - 1) * a.size
	}
	if a.written+n > most {
		a.breakLocked(fmt.Errorf("%w: it has read %d MiB in %d sessions, of an image of %d MiB", ErrBreach,
			(a.written+n)>>20, a.sessions, a.size>>20))
		return a.breach
	}
	a.written += n
	return nil
}

// forgiveLocked lessens what was written by the image's size for each filesAgain that has passed.
func (a *Account) forgiveLocked(now time.Time) {
	if !a.counted.IsZero() {
		times := now.Sub(a.counted).Seconds() / filesAgain.Seconds()
		a.written = max(0, a.written-int64(times*float64(a.size)))
	}
	a.counted = now
}

// broken notes a breach. No session may go on, or begin.
func (a *Account) broken(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.breakLocked(err)
}

func (a *Account) breakLocked(err error) {
	if a.breach == nil {
		a.breach = err
	}
}

// breached returns the first breach, or nil.
func (a *Account) breached() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.breach
}
