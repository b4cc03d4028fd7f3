package terminal

import (
	"fmt"
	"os"

	"diapause.dev/api/snapshot"
	"golang.org/x/sys/unix"
)

// Read returns the settings of the terminal with that name. Opening it does not make it anyone's controlling
// terminal.
func Read(name string) (*snapshot.Terminal, error) {
	f, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open terminal: %w", err)
	}
	defer f.Close()
	t, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	if err != nil {
		return nil, fmt.Errorf("settings of terminal %s: %w", name, err)
	}
	w, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return nil, fmt.Errorf("size of terminal %s: %w", name, err)
	}
	return &snapshot.Terminal{
		Input: t.Iflag, Output: t.Oflag, Control: t.Cflag, Local: t.Lflag, Characters: t.Cc[:],
		Rows: w.Row, Columns: w.Col,
	}, nil
}

// Set applies settings to a terminal. The kernel ignores those that it does not know.
func Set(f *os.File, s *snapshot.Terminal) error {
	t := unix.Termios{Iflag: s.Input, Oflag: s.Output, Cflag: s.Control, Lflag: s.Local}
	copy(t.Cc[:], s.Characters)
	if err := unix.IoctlSetTermios(int(f.Fd()), unix.TCSETS, &t); err != nil {
		return fmt.Errorf("set terminal %s: %w", f.Name(), err)
	}
	if err := unix.IoctlSetWinsize(int(f.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: s.Rows, Col: s.Columns}); err != nil {
		return fmt.Errorf("set the size of terminal %s: %w", f.Name(), err)
	}
	return nil
}
