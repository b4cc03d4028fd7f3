package v1_test

import (
	"testing"
	"time"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

const day = 24 * time.Hour

func TestParseTimeout(t *testing.T) {
	for s, want := range map[string]time.Duration{
		"7d": 7 * day, "90min": 90 * time.Minute, "1h": time.Hour, "2mo": 60 * day, "1y": 365 * day,
		"1d12h": 36 * time.Hour, "0y7d": 7 * day,
		"99y999mo9999d99999h999999min": 99*365*day + 999*30*day + 9999*day + 99999*time.Hour + 999999*time.Minute,
	} {
		if got, err := podsnapshotv1.ParseTimeout(s); got != want || err != nil {
			t.Errorf("ParseTimeout(%q) = %v, %v; want %v", s, got, err, want)
		}
	}
	for _, s := range []string{
		"", "0d", "7", "d", "7D", "7 d", "-7d", "1.5d", "7d1y", "7d7d", "100y", "1m", "60s", "7d\n",
		" 7d", "٧d",
	} {
		if got, err := podsnapshotv1.ParseTimeout(s); err == nil {
			t.Errorf("ParseTimeout(%q) = %v; want an error", s, got)
		}
	}
}

func TestTimeoutWithoutRetention(t *testing.T) {
	var spec podsnapshotv1.PodSnapshotPolicySpec
	if got, err := spec.Timeout(); got != 0 || err != nil {
		t.Errorf("Timeout() = %v, %v; want 0", got, err)
	}
	spec.RetentionConfig = &podsnapshotv1.RetentionConfig{LastAccessTimeout: "3h"}
	if got, err := spec.Timeout(); got != 3*time.Hour || err != nil {
		t.Errorf("Timeout() = %v, %v; want 3h", got, err)
	}
}

// FuzzParseTimeout: an accepted timeout is a duration of more than zero that did not overflow.
func FuzzParseTimeout(f *testing.F) {
	for _, s := range []string{"7d", "90min", "1y2mo3d4h5min", "99y999mo9999d99999h999999min", "0h", "7d\n", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := podsnapshotv1.ParseTimeout(s)
		if err == nil && (got < time.Minute || got > 250*365*day) {
			t.Errorf("ParseTimeout(%q) = %v", s, got)
		}
	})
}
