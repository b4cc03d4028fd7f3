package local

import (
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"diapause.dev/api/snapshot"
)

// TestParseSettings: the period is that of containerd 2.4 and newer, and 1 s if containerd cannot read it either. The
// networks are as go-cni 1.1.14 has reported them for three directories of configurations.
func TestParseSettings(t *testing.T) {
	for config, want := range map[string]time.Duration{
		`{}`:                                     0,
		`{"statsCollectPeriod": 10}`:             0, // 2.1: of snapshots
		`{"statsCollectPeriod": "10s"}`:          10 * time.Second,
		`{"statsCollectPeriod": "1m30s", "a":1}`: 90 * time.Second,
		`{"statsCollectPeriod": ""}`:             time.Second,
		`{"statsCollectPeriod": "x"}`:            time.Second,
	} {
		if got, err := parseSettings(config, ""); err != nil || !reflect.DeepEqual(got, settings{statsPeriod: want}) {
			t.Errorf("%s: %+v, %v; want %v", config, got, err, want)
		}
	}
	for name, want := range map[string][]string{"bridge": {"bridge"}, "macvlan": {"macvlan"}, "none": nil} {
		networks, err := os.ReadFile("testdata/cniconfig-" + name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parseSettings("{}", string(networks)); err != nil || !reflect.DeepEqual(got.networks, want) {
			t.Errorf("%s: %q, %v", name, got.networks, err)
		}
	}
	for config, networks := range map[string]string{"": "", "[": "", "{}": "["} {
		if got, err := parseSettings(config, networks); err == nil {
			t.Errorf("%q, %q: %+v, want an error", config, networks, got)
		}
	}
}

func FuzzParseSettings(f *testing.F) {
	f.Add(`{"statsCollectPeriod": "10s"}`, `{"Networks": [{"Config": {"Plugins": [{"Network": {"type": "bridge"}}]}}]}`)
	f.Fuzz(func(t *testing.T, config, networks string) {
		if got, _ := parseSettings(config, networks); len(got.networks) > maxNetworks {
			t.Errorf("%d networks", len(got.networks))
		}
	})
}

// TestDescribeRunsc: only gVisor's own build is attended to.
func TestDescribeRunsc(t *testing.T) {
	f := snapshot.Facts{RunscVersion: "v1", Platform: "systrap", Repaired: true}
	if got := describeRunsc(f); got != "v1 on systrap" {
		t.Errorf("the repaired build: %q", got)
	}
	f.Repaired = false
	if got := describeRunsc(f); !strings.HasPrefix(got, "v1 on systrap; attention: ") {
		t.Errorf("gVisor's own: %q", got)
	}
}
