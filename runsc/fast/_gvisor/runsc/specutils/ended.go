package specutils

import "golang.org/x/sys/unix"

// hasEnded reports whether a child has ended. How it ended is left for whoever waits for it.
func hasEnded(pid int) (bool, error) {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return info.Signo != 0, err // 0 with WNOHANG: it has not ended
		}
	}
}
