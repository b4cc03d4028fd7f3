package storage

import "time"

// SetClock has a store tell the time by a test's wall clock and clock since boot.
func SetClock(s *Store, now func() (wall time.Time, boot time.Duration)) {
	s.clock = func() instant {
		wall, boot := now()
		return instant{wall: wall, boot: boot}
	}
}

// NoticeLife is how long a notice counts.
const NoticeLife = noticeLife
