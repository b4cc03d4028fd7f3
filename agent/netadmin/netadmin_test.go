package netadmin_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/netadmin"
	"diapause.dev/api/snapshot"
)

var pod = snapshot.PodRef{Namespace: "ns", Name: "web"}

// TestGranted: a container may change its pod's network as containerd reads what it adds and drops.
func TestGranted(t *testing.T) {
	type caps = []string
	for _, c := range []struct {
		add, drop caps
		want      bool
	}{
		{nil, nil, false},
		{caps{"NET_RAW", "SYS_ADMIN"}, nil, false},
		{caps{"NET_RAW", "NET_ADMIN"}, nil, true},
		{caps{"net_admin"}, nil, true},
		{caps{"CAP_NET_ADMIN"}, nil, true},
		{caps{"all"}, nil, true},
		{caps{"NET_ADMIN"}, caps{"ALL"}, true}, // what is added comes last
		{caps{"ALL"}, caps{"net_admin"}, false},
		{caps{"ALL"}, caps{"NET_RAW"}, true},
	} {
		if got := netadmin.Granted(c.add, c.drop); got != c.want {
			t.Errorf("add %q, drop %q: %v", c.add, c.drop, got)
		}
	}
}

// recorded returns a container as containerd has recorded it.
func recorded(t *testing.T, name string, s *criapi.LinuxContainerSecurityContext) snapshot.Container {
	t.Helper()
	b, err := json.Marshal(&criapi.ContainerConfig{Linux: &criapi.LinuxContainerConfig{SecurityContext: s}})
	if err != nil {
		t.Fatal(err)
	}
	return snapshot.Container{Name: name, Config: b}
}

// TestCheck: the pod of a node without a cluster, too, never sleeps and is checkpointed with a warning, or not at all.
func TestCheck(t *testing.T) {
	adds := &criapi.LinuxContainerSecurityContext{
		Capabilities: &criapi.Capability{AddCapabilities: []string{"NET_ADMIN"}},
	}
	plain := recorded(t, "app", nil)
	for name, x := range map[string]struct {
		known netadmin.Case
		rec   snapshot.Pod
		want  string // the container
	}{
		"none":           {rec: runs(plain)},
		"in the cluster": {netadmin.Case{Container: "init"}, snapshot.Pod{}, "init"},
		"that runs":      {rec: runs(plain, recorded(t, "vpn", adds)), want: "vpn"},
		"that has ended": {rec: ended(recorded(t, "fw", adds)), want: "fw"},
		"privileged":     {rec: runs(recorded(t, "root", privileged)), want: "root"},
	} {
		t.Run(name, func(t *testing.T) {
			says := func(text string) bool { return x.want != "" && strings.Contains(text, "container "+x.want+" ") }
			_, err := x.known.Check(pod, x.rec, snapshot.WholePod, true)
			refused(t, err, says, "pod ns/web never sleeps", x.want == "")
			warning, err := x.known.Check(pod, x.rec, snapshot.WholePod, false)
			if err != nil || says(warning) != (x.want != "") {
				t.Errorf("warning %q, %v", warning, err)
			}
			x.known.Fails = true
			_, err = x.known.Check(pod, x.rec, snapshot.WholePod, false)
			refused(t, err, says, "pod ns/web is not checkpointed", x.want == "")
			if warning, err := x.known.Check(pod, x.rec, snapshot.RootfsOnly, false); warning != "" || err != nil {
				t.Errorf("files alone: %q, %v", warning, err)
			}
			_, err = x.known.Check(pod, x.rec, snapshot.RootfsOnly, true)
			refused(t, err, says, "never sleeps", x.want == "")
		})
	}
}

func runs(c ...snapshot.Container) snapshot.Pod { return snapshot.Pod{Containers: c} }

func ended(c snapshot.Container) snapshot.Pod {
	return snapshot.Pod{Ended: []snapshot.EndedContainer{{Container: c}}}
}

var privileged = &criapi.LinuxContainerSecurityContext{Privileged: true}

// refused checks that err is a refusal that begins with text and names the container, or nil if none is wanted.
func refused(t *testing.T, err error, names func(string) bool, text string, not bool) {
	t.Helper()
	if not && err == nil {
		return
	}
	if not || !errors.Is(err, errkind.ErrNetAdmin) || !names(err.Error()) || !strings.Contains(err.Error(), text) {
		t.Errorf("refusal %v, want none: %v", err, not)
	}
}

// TestUnknownConfiguration: if nobody can tell what a container may do, there is no snapshot.
func TestUnknownConfiguration(t *testing.T) {
	rec := snapshot.Pod{Containers: []snapshot.Container{{Name: "app", Config: []byte("[]")}}}
	if _, err := (netadmin.Case{}).Check(pod, rec, snapshot.WholePod, false); err == nil {
		t.Error("no error")
	}
}
