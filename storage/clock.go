package storage

import (
	"time"

	"golang.org/x/sys/unix"
)

// instant is a moment by the clocks of this machine.
type instant struct {
	wall time.Time     // may be set; goes on while the machine is suspended
	boot time.Duration // never goes back, and counts time in which the machine was suspended
}

// clock tells the time. Tests have their own.
type clock func() instant

func machineClock() instant {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // never fails: Linux has had it since 2.6.39
	return instant{wall: time.Now().Round(0), boot: time.Duration(ts.Nano())}
}

// since returns how much time has passed since an instant, by the clock that says more. The wall clock may have been
// set back. The boot clock may have stood still while a virtual machine was suspended.
func (c clock) since(t instant) time.Duration {
	now := c()
	return max(now.wall.Sub(t.wall), now.boot-t.boot)
}
