package local

import (
	"testing"

	"diapause.dev/api/snapshot"
)

func TestParseKey(t *testing.T) {
	for _, tt := range []struct{ s, namespace, want string }{
		{"a", "", "default/a"},
		{"a", "n", "n/a"},
		{"m/a", "n", "m/a"},
		{"m/a", "", "m/a"},
		{"m/a/b", "", "m/a/b"},
		{"", "", "default/"},
	} {
		if got := parseKey(tt.s, tt.namespace).String(); got != tt.want {
			t.Errorf("%q in %q: %q, want %q", tt.s, tt.namespace, got, tt.want)
		}
	}
	for _, bad := range []string{"", "/", "m/a/b", "../a", "a/..", "A"} {
		if err := parseKey(bad, "").Validate(); err == nil {
			t.Errorf("%q is valid", bad)
		}
	}
}

// TestPodOf: the annotations are containerd's, as its package internal/cri/annotations has them.
func TestPodOf(t *testing.T) {
	got := podRef(map[string]string{
		"io.kubernetes.cri.sandbox-namespace": "n", "io.kubernetes.cri.sandbox-name": "p",
		"io.kubernetes.cri.sandbox-uid": "u",
	})
	if want := (snapshot.PodRef{Namespace: "n", Name: "p", UID: "u"}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
