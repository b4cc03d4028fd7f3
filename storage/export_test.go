package storage

import (
	"time"

	"diapause.dev/storage/format"
)

// SetClock replaces a store's clock by a test's wall clock and boot clock.
func SetClock(s *Store, now func() (wall time.Time, boot time.Duration)) {
	s.claims.clock = func() instant {
		wall, boot := now()
		return instant{wall: wall, boot: boot}
	}
	s.collector.clock = s.claims.clock
}

// NoticeLife is how long a notice counts.
const NoticeLife = noticeLife

// Forge returns the manifest of another snapshot with a key and a UID of the forger's choice.
func Forge(m *Manifest, key Key, uid string) ([]byte, error) {
	forged := *m
	forged.Meta.Key, forged.Meta.UID = key, uid
	return format.EncodeSigned(&forged, nil)
}
