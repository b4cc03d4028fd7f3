package command

import (
	"strings"
	"testing"

	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
)

func TestParseKey(t *testing.T) {
	tests := []struct {
		arg, namespace string
		want           snapshot.Key
		ok             bool
	}{
		{"s", "", snapshot.Key{Namespace: "default", Name: "s"}, true},
		{"s", "ns", snapshot.Key{Namespace: "ns", Name: "s"}, true},
		{"ns/s", "", snapshot.Key{Namespace: "ns", Name: "s"}, true},
		{"ns/s", "ns", snapshot.Key{Namespace: "ns", Name: "s"}, true},
		{"ns/s", "other", snapshot.Key{}, false},
		{"", "", snapshot.Key{}, false},
		{"/s", "", snapshot.Key{}, false},
		{"a/b/c", "", snapshot.Key{}, false},
		{"..", "", snapshot.Key{}, false},
		{strings.Repeat("a", 254), "", snapshot.Key{}, false},
	}
	for _, tt := range tests {
		got, err := parseKey(tt.arg, tt.namespace)
		if (err == nil) != tt.ok || tt.ok && got != tt.want {
			t.Errorf("parseKey(%q, %q) = %v, %v", tt.arg, tt.namespace, got, err)
		}
		if err != nil && exitCode(err) != errkind.ExitUsage {
			t.Errorf("parseKey(%q): exit code %d", tt.arg, exitCode(err))
		}
	}
}

func FuzzParseKey(f *testing.F) {
	f.Add("ns/s", "")
	f.Add("../..", "ns")
	f.Fuzz(func(t *testing.T, arg, namespace string) {
		if k, err := parseKey(arg, namespace); err == nil && k.Validate() != nil {
			t.Errorf("parseKey(%q, %q) = %v, which is not valid", arg, namespace, k)
		}
	})
}
