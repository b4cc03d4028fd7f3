package agent

import (
	"crypto/rand"
	"encoding/hex"
	"strings"
	"time"

	"diapause.dev/api/snapshot"
)

// newID returns n random bytes in hex.
func newID(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// snapshotName makes a name out of a pod's name, the time, and chance.
func snapshotName(pod string, now time.Time) string {
	suffix := now.UTC().Format("-20060102-150405-") + newID(2)
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

// parseKey parses "namespace/name", or a name in the namespace given.
func parseKey(s, namespace string) snapshot.Key {
	if ns, name, ok := strings.Cut(s, "/"); ok {
		return snapshot.Key{Namespace: ns, Name: name}
	}
	if namespace == "" {
		namespace = "default"
	}
	return snapshot.Key{Namespace: namespace, Name: s}
}
