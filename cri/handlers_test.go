package cri

import "testing"

func TestParseHandlers(t *testing.T) {
	got, err := parseHandlers(`{"containerd": {"runtimes": {"diapause": {"runtimeType": "io.containerd.diapause.v1",
		"runtimePath": "/opt/x", "PodAnnotations": ["dev.gvisor.*"], "options": {"ConfigPath": "/etc/x"}}}}}`)
	h := got["diapause"]
	if err != nil || h.Type != RuntimeType || h.Path != "/opt/x" || len(h.PodAnnotations) != 1 ||
		h.Options["ConfigPath"] != "/etc/x" {
		t.Errorf("parseHandlers = %+v, %v", got, err)
	}
	for _, config := range []string{"", "{}", `{"containerd": 1}`} {
		if got, err := parseHandlers(config); err == nil {
			t.Errorf("parseHandlers(%q) = %v, want an error", config, got)
		}
	}
}

func FuzzParseHandlers(f *testing.F) {
	f.Add(`{"containerd": {"runtimes": {"a": {}}}}`)
	f.Fuzz(func(t *testing.T, config string) {
		if got, err := parseHandlers(config); err == nil && got == nil {
			t.Error("neither handlers nor an error")
		}
	})
}
