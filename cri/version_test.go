package cri

import (
	"errors"
	"strings"
	"testing"
)

func TestCheckVersion(t *testing.T) {
	for version, want := range map[string]error{
		"containerd v1.7.35":      ErrUnsupported,
		"containerd 1.6.20~ds1":   ErrUnsupported, // of Debian
		"containerd v1.7.27-k3s1": ErrUnsupported,
		"containerd v2.0.7":       ErrOutdated,
		"containerd v2.1.8":       ErrOutdated,
		"containerd v2.2.4":       ErrOutdated,
		"containerd v2.3.1":       ErrOutdated,
		"containerd v2.1.9":       nil,
		"containerd v2.2.5":       nil,
		"containerd v2.3.10":      nil,
		"containerd v2.4.0":       nil,
		"containerd v2.4.2":       nil,
		"containerd v10.1.0":      nil,
		"containerd unknown":      nil,
		"cri-o 1.36.0":            nil,
	} {
		doubt, err := CheckVersion(version)
		if !errors.Is(err, want) || doubt != "" || err != nil && !strings.Contains(err.Error(), "2.1.9") {
			t.Errorf("%s: %q, %v", version, doubt, err)
		}
	}
	for version, want := range map[string]bool{
		"containerd 2.1.5+unknown":         true, // built without a version
		"containerd 2.1.3-0ubuntu3~24.04":  true,
		"containerd v2.3.2-k3s1":           false,
		"containerd 2.3.10-0ubuntu1~24.04": false,
	} {
		doubt, err := CheckVersion(version)
		if err != nil || (doubt != "") != want || want && !strings.Contains(doubt, "2.1.9") {
			t.Errorf("%s: %q, %v", version, doubt, err)
		}
	}
}
