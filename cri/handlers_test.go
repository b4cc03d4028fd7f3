package cri

import "testing"

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
