package cri

import (
	"errors"
	"testing"
)

func TestParseRuntimes(t *testing.T) {
	got, err := parseRuntimes(`{"containerd": {"defaultRuntimeName": "runc", "runtimes": {"diapause": {
		"runtimeType": "io.containerd.diapause.v1", "runtimePath": "/opt/x", "PodAnnotations": ["dev.gvisor.*"],
		"options": {"ConfigPath": "/etc/x"}}}}}`)
	h := got.All["diapause"]
	if err != nil || got.Default != "runc" || h.Type != RuntimeType || h.Path != "/opt/x" || len(h.PodAnnotations) != 1 ||
		h.Options["ConfigPath"] != "/etc/x" {
		t.Errorf("parseRuntimes = %+v, %v", got, err)
	}
	for _, config := range []string{"", "{}", `{"containerd": 1}`} {
		if got, err := parseRuntimes(config); err == nil {
			t.Errorf("parseRuntimes(%q) = %v, want an error", config, got)
		}
	}
}

func FuzzParseRuntimes(f *testing.F) {
	f.Add(`{"containerd": {"runtimes": {"a": {}}}}`)
	f.Fuzz(func(t *testing.T, config string) {
		if got, err := parseRuntimes(config); err == nil && got.All == nil {
			t.Error("neither handlers nor an error")
		}
	})
}

// TestHostileHandler: a record names its runtime handler. Any other than Diapause's would start its containers on the
// node's kernel.
func TestHostileHandler(t *testing.T) {
	r := runtimes{Default: "runc", All: map[string]Handler{
		"runc": {Type: "io.containerd.runc.v2"}, "diapause": {Type: RuntimeType}, "other": {Type: RuntimeType},
	}}
	for name, want := range map[string]bool{"diapause": true, "other": true, "runc": false, "": false, "none": false} {
		if err := r.check(name); (err == nil) != want || !want && !errors.Is(err, ErrOtherRuntime) {
			t.Errorf("handler %q: %v", name, err)
		}
	}
	r.Default = "diapause"
	if err := r.check(""); err != nil {
		t.Errorf("the default: %v", err)
	}
}
