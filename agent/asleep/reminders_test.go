package asleep

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"diapause.dev/agent/journal/journaltest"
	"diapause.dev/agent/requests"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/sleep"
)

// sleepy is a pod that slept on a snapshot.
var sleepy = Sleeper{
	Pod: snapshot.PodRef{Namespace: "n", Name: "pod", UID: "uid"}, Sandbox: "sandbox",
	Snapshot: snapshots.ID{Key: snapshot.Key{Namespace: "n", Name: "s"}, UID: "one"},
}

// newest is a containerd that knows the newest sandbox of every pod.
type newest string

func (n newest) Newest(context.Context, string, string) (string, error) { return string(n), nil }

// remembered reports whether there is a reminder of the pod.
func remembered(t *testing.T, rs *Reminders) bool {
	t.Helper()
	_, err := os.Stat(rs.Path("uid"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// reboot has the node be another boot later than the one in which the pod fell asleep.
func reboot(rs *Reminders) error {
	m, err := sleep.ReadReminder(rs.Path("uid"))
	if err != nil {
		return err
	}
	m.Boot = "another"
	return m.Write(rs.Path("uid"))
}

// TestEndedAsleep: a pod that ended in its sleep, or slept when the node went down, is known until the cluster has
// decided about its snapshot. One that sleeps, has woken, or has had another sandbox since is none.
func TestEndedAsleep(t *testing.T) {
	for name, c := range map[string]struct {
		asleep, woken, rebooted bool
		newest                  newest
		want                    bool
	}{
		"ended":                {newest: "sandbox", want: true},
		"ended and removed":    {want: true},
		"rebooted":             {newest: "sandbox", rebooted: true, want: true},
		"rebooted and removed": {rebooted: true, want: true},
		"asleep":               {newest: "sandbox", asleep: true},
		"woken":                {newest: "sandbox", woken: true},
		"started anew":         {newest: "next"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := requests.Dir(t.TempDir())
			rs := NewReminders(Config{
				Dir: t.TempDir(), Runtime: c.newest, Marks: NewMarks(dir, journaltest.Quiet), Clustered: true,
				Logger: journaltest.Quiet,
			})
			err := rs.Write(sleepy, false)
			if c.woken {
				err = errors.Join(err, rs.Forget(sleepy.Pod))
			}
			if c.rebooted {
				err = errors.Join(err, reboot(rs))
			}
			if c.asleep {
				mark := sleep.Mark{Sandbox: "sandbox", UID: "uid", Since: time.Now()}
				err = errors.Join(err, os.Mkdir(dir.Path("request"), 0o700), mark.Write(dir.Path("request")))
			}
			if err != nil {
				t.Fatal(err)
			}
			preparing := func(string) bool { return false }
			rs.Clean(t.Context(), preparing)
			pod, ended, err := rs.EndedAsleep(t.Context(), sleepy.Snapshot.Key, "one")
			if ended != c.want || err != nil || ended && pod != sleepy.Pod {
				t.Errorf("%+v, %v, %v, want %v", pod, ended, err, c.want)
			}
			if _, ended, err := rs.EndedAsleep(t.Context(), sleepy.Snapshot.Key, "two"); ended || err != nil {
				t.Errorf("on another snapshot: %v, %v", ended, err)
			}
			if remembered(t, rs) != (c.want || c.asleep) {
				t.Errorf("remembered: %v", remembered(t, rs))
			}
			for uid := range rs.ended.all {
				rs.ended.all[uid] = time.Now().Add(-endedTime - time.Second)
			}
			rs.Clean(t.Context(), preparing)
			if remembered(t, rs) != (c.asleep || c.rebooted && c.newest == "sandbox") {
				t.Errorf("after an hour, remembered: %v", remembered(t, rs))
			}
		})
	}
}
