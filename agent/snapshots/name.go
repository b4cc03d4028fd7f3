package snapshots

import (
	"strings"
	"time"

	"diapause.dev/agent/requests"
)

// NewName makes a name for a snapshot from a pod's name, the time, and a random suffix.
func NewName(pod string, now time.Time) string {
	suffix := now.UTC().Format("-20060102-150405-") + requests.NewID(2)
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(pod))
	clean = strings.Trim(clean[:min(len(clean), 253-len(suffix))], "-")
	if clean == "" {
		clean = "pod"
	}
	return clean + suffix
}
