package local

import (
	"testing"
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
