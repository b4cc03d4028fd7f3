package budget

import (
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// Disk keeps a part of the spool's disk free, whatever checkpoints write there. Its methods may be called concurrently.
type Disk struct {
	dir     string
	percent int64
	statfs  func(dir string, to *unix.Statfs_t) error

	mu       sync.Mutex
	promised int64 // bytes that checkpoints under way may write, and may have written already
	promises int
}

// NewDisk returns the budget for the disk of a directory, of which percent must stay free. 0 means that any checkpoint
// may begin, however full the disk is.
func NewDisk(dir string, percent int) *Disk {
	return &Disk{dir: dir, percent: int64(percent), statfs: unix.Statfs}
}

// Promise refuses n bytes unless the disk has room for them above its floor, besides what is promised to others. The
// promise ends with release, which may be called more than once.
func (d *Disk) Promise(n int64) (release func(), err error) {
	if d.percent == 0 {
		return func() {}, nil
	}
	var st unix.Statfs_t
	if err := d.statfs(d.dir, &st); err != nil {
		return nil, fmt.Errorf("free bytes of the disk of %s: %w", d.dir, err)
	}
	free := int64(st.Bavail) * st.Bsize
	size := int64(st.Blocks-st.Bfree)*st.Bsize + free // without what is reserved, like df
	floor := size / 100 * d.percent
	d.mu.Lock()
	defer d.mu.Unlock()
	if free-d.promised-n < floor {
		return nil, refuse(diskName, "it may write %s to the disk of %s; %s are free there, %s are promised to %d other "+
			"checkpoints, and %s must stay free: make room, or lower --disk-floor=%d", mib(n), d.dir, mib(free),
			mib(d.promised), d.promises, mib(floor), d.percent)
	}
	d.promised += n
	d.promises++
	return sync.OnceFunc(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.promised -= n
		d.promises--
	}), nil
}
