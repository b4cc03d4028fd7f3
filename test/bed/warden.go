package bed

import (
	"errors"
	"io"
	"os"
	"runtime"
	"syscall"
)

// outerPipe is the descriptor whose end of file says that outer is gone.
const outerPipe = 3

// warden starts the bed, ends it when outer goes, and cleans up after it.
func (t ticket) warden() (code int, err error) {
	syscall.CloseOnExec(outerPipe)
	scratch, err := newScratch(t.Bin.Root)
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, scratch.remove()) }()
	t.Role, t.Name, t.Scratch, t.IP = roleInit, scratch.name, scratch.dir, bedIP
	if t.Bin, err = scratch.link(t.Bin); err != nil {
		return 1, err
	}
	cmd, err := t.command()
	if err != nil {
		return 1, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: namespaces,
		Pdeathsig:  syscall.SIGKILL,
	}
	runtime.LockOSThread() // the death signal is for the death of this thread
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	go func() { // ends with this process
		io.Copy(io.Discard, os.NewFile(outerPipe, "outer"))
		cmd.Process.Kill()
		thaw(t.Name)
	}()
	return status(cmd.Wait())
}
