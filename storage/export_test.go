package storage

import "time"

// SetClock replaces a store's clock by a test's wall clock and boot clock.
func SetClock(s *Store, now func() (wall time.Time, boot time.Duration)) {
	s.clock = func() instant {
		wall, boot := now()
		return instant{wall: wall, boot: boot}
	}
}

// NoticeLife is how long a notice counts.
const NoticeLife = noticeLife
