package checkpoint

import (
	"errors"
	"strings"
	"testing"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/netadmin"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
)

// TestNetAdmin: a pod with a container that may change its network is not handed over. A checkpoint of it warns, unless
// only its files are kept, or fails before the pause, as its policy says.
func TestNetAdmin(t *testing.T) {
	r, c := inCluster(t, Description{NetAdmin: netadmin.Case{Container: "fw"}})
	if _, _, err := r.save(saving{}, Options{Handover: handover{r.runtime}}); !errors.Is(err, errkind.ErrNetAdmin) {
		t.Errorf("handed over: %v", err)
	}
	warned := ""
	warns := Options{Name: "warns", Spooled: func(_ *snapshots.Found, w string) { warned = w }}
	request, _, err := r.save(saving{}, warns)
	if err != nil || !strings.Contains(warned, "container fw ") || r.Journal.Get(request).Warning != warned {
		t.Errorf("warning %q, the journal says %+v; %v", warned, r.Journal.Get(request), err)
	}
	files, _, err := r.save(saving{scope: snapshot.RootfsOnly}, Options{Name: "files"})
	if err != nil || r.Journal.Get(files).Warning != "" {
		t.Errorf("files alone: the journal says %+v; %v", r.Journal.Get(files), err)
	}
	c.description.NetAdmin.Fails = true
	before := len(r.runtime.made())
	_, _, err = r.save(saving{}, Options{Name: "fails"})
	if calls := strings.Join(r.runtime.made()[before:], " "); !errors.Is(err, errkind.ErrNetAdmin) ||
		strings.Contains(calls, "pause") || strings.Contains(calls, "checkpoint") {
		t.Errorf("calls %s; %v", calls, err)
	}
	r.isSound()
}

// TestNetAdminAsleep: neither is a checkpoint of a pod that sleeps silent, which an earlier agent has put to sleep.
func TestNetAdminAsleep(t *testing.T) {
	r, _ := asleepRig(t)
	r.with(func(c *Config) {
		c.Cluster = &cluster{description: Description{NetAdmin: netadmin.Case{Container: "fw"}}}
	})
	request, _, err := r.save(saving{}, Options{})
	if err != nil || !strings.Contains(r.Journal.Get(request).Warning, "container fw ") {
		t.Errorf("the journal says %+v; %v", r.Journal.Get(request), err)
	}
}
