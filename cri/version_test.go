package cri

import (
	"errors"
	"strings"
	"testing"
)

func TestCheckVersion(t *testing.T) {
	for version, ok := range map[string]bool{
		"containerd v1.7.35":       false,
		"containerd 1.6.20~ds1":    false, // of Debian
		"containerd v1.7.27-k3s1":  false,
		"containerd v2.1.9":        true,
		"containerd v2.4.2":        true,
		"containerd 2.1.5+unknown": true, // built without a version
		"containerd v10.1.0":       true,
		"cri-o 1.36.0":             true,
	} {
		err := CheckVersion(version)
		if ok != (err == nil) || !ok && (!errors.Is(err, ErrUnsupported) || !strings.Contains(err.Error(), "2.1.9")) {
			t.Errorf("%s: %v", version, err)
		}
	}
}
