package objects

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// answers is a transport that answers with a status and a Date.
type answers struct {
	status int
	date   string
	err    error
}

func (a answers) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: a.status, Header: http.Header{"Date": {a.date}}}, a.err
}

// hears has a clock hear an answer.
func hears(t *testing.T, c *Clock, a answers) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://api", nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Listen(a).RoundTrip(r); !errors.Is(err, a.err) {
		t.Fatal(err)
	}
}

func at(d time.Duration) string { return time.Now().Add(d).UTC().Format(http.TimeFormat) }

// TestClock: the time is the API server's. It is certain only if this node's clock is within a minute of it.
func TestClock(t *testing.T) {
	for _, x := range []struct {
		skew   time.Duration // of this node's clock
		agreed bool
		says   string
	}{
		{0, true, ""},
		{55 * time.Second, true, ""},
		{-55 * time.Second, true, ""},
		{65 * time.Second, false, "ahead of the API server's"},
		{-65 * time.Second, false, "behind the API server's"},
	} {
		c := NewClock(func() time.Time { return time.Now().Add(time.Hour + x.skew) })
		hears(t, c, answers{status: http.StatusOK, date: at(time.Hour)})
		now, err := c.Now()
		if off := time.Until(now) - time.Hour; err != nil || off.Abs() > 30*time.Second {
			t.Errorf("skew %v: the server's time is off by %v, %v", x.skew, off, err)
		}
		if _, err := c.Agreed(); (err == nil) != x.agreed ||
			err != nil && (!errors.Is(err, ErrClock) || !strings.Contains(err.Error(), x.says)) {
			t.Errorf("skew %v: %v", x.skew, err)
		}
	}
}

// TestHostileDates: what is no Date, or not the API server's, does not change the time. Without any, or if the last one
// is old, the time is not known.
func TestHostileDates(t *testing.T) {
	for _, bad := range []answers{
		{status: http.StatusOK, date: ""},
		{status: http.StatusOK, date: "next year"},
		{status: http.StatusBadGateway, date: at(time.Hour)},
		{status: http.StatusFound, date: at(time.Hour)},
		{status: http.StatusOK, date: at(time.Hour), err: errors.New("away")},
	} {
		c := NewClock(time.Now)
		hears(t, c, bad)
		for _, f := range []func() (time.Time, error){c.Now, c.Agreed} {
			if now, err := f(); !errors.Is(err, ErrClock) {
				t.Errorf("%+v: %v, %v", bad, now, err)
			}
		}
		hears(t, c, answers{status: http.StatusOK, date: at(0)})
		hears(t, c, bad)
		if _, err := c.Agreed(); err != nil {
			t.Errorf("%+v after a good one: %v", bad, err)
		}
		c.heard = time.Now().Add(-maxSilence - time.Second)
		if now, err := c.Now(); !errors.Is(err, ErrClock) {
			t.Errorf("after a long silence: %v, %v", now, err)
		}
	}
}

// TestHostileRenewTime: when a Lease was renewed is taken from the API server's notes, as long as there are any.
func TestHostileRenewTime(t *testing.T) {
	noted, earlier := metav1.Unix(2000, 0), metav1.Unix(1000, 0)
	said := metav1.NewMicroTime(time.Unix(9000, 0))
	for name, x := range map[string]struct {
		lease coordinationv1.Lease
		want  int64
	}{
		"noted": {coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{ManagedFields: []metav1.ManagedFieldsEntry{{Time: &noted}, {Time: &earlier}, {}}},
			Spec:       coordinationv1.LeaseSpec{RenewTime: &said},
		}, 2000},
		"said": {coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: &said}}, 9000},
	} {
		if got := renewed(&x.lease); got.Unix() != x.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := renewed(&coordinationv1.Lease{}); !got.IsZero() {
		t.Errorf("never: %v", got)
	}
}
