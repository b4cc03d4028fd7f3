package v1

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// timeouts matches a timeout, with one submatch for the number of each unit. The number of digits is bounded so that
// no sum overflows a [time.Duration].
var timeouts = regexp.MustCompile(`^(?:([0-9]{1,2})y)?(?:([0-9]{1,3})mo)?(?:([0-9]{1,4})d)?` +
	`(?:([0-9]{1,5})h)?(?:([0-9]{1,6})min)?$`)

// timeoutUnits are the units of a timeout, longest first.
var timeoutUnits = [...]time.Duration{365 * 24 * time.Hour, 30 * 24 * time.Hour, 24 * time.Hour, time.Hour, time.Minute}

// ParseTimeout returns the duration of a policy's lastAccessTimeout, which is more than zero. It accepts what the API
// server accepts. The error says what to write instead.
func ParseTimeout(s string) (time.Duration, error) {
	match := timeouts.FindStringSubmatch(s)
	var total time.Duration
	for i, unit := range timeoutUnits {
		if match == nil || match[i+1] == "" {
			continue
		}
		n, err := strconv.Atoi(match[i+1])
		if err != nil {
			return 0, fmt.Errorf("lastAccessTimeout %.40q: %w", s, err)
		}
		total += time.Duration(n) * unit
	}
	if total == 0 {
		return 0, fmt.Errorf("lastAccessTimeout %.40q: want whole numbers with the units y, mo, d, h and min, longest "+
			"first and more than zero, as in 7d, 90min or 1d12h", s)
	}
	return total, nil
}

// Timeout returns how long an unused snapshot is kept. It is 0 if the policy keeps snapshots for ever.
func (s *PodSnapshotPolicySpec) Timeout() (time.Duration, error) {
	if s.RetentionConfig == nil {
		return 0, nil
	}
	return ParseTimeout(s.RetentionConfig.LastAccessTimeout)
}
