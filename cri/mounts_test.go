package cri

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	"diapause.dev/api/snapshot"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestMounts(t *testing.T) {
	container := func(name string, mounts ...*criapi.Mount) snapshot.Container {
		config, err := json.Marshal(&criapi.ContainerConfig{Mounts: mounts})
		if err != nil {
			t.Fatal(err)
		}
		return snapshot.Container{Name: name, Config: config}
	}
	p := snapshot.Pod{Containers: []snapshot.Container{
		container("a", &criapi.Mount{HostPath: "/one", ContainerPath: "/x/"},
			&criapi.Mount{HostPath: "/two", ContainerPath: "/y"}),
		container("b"),
		container("c", &criapi.Mount{HostPath: "/one", ContainerPath: "/z"}),
	}}
	got, err := Mounts(p)
	want := map[string][]Mount{"/one": {{"a", "/x"}, {"c", "/z"}}, "/two": {{"a", "/y"}}}
	if err != nil || !maps.EqualFunc(got, want, slices.Equal) {
		t.Errorf("mounts %v, %v, want %v", got, err, want)
	}
	p.Containers[1].Config = []byte("{")
	if _, err := Mounts(p); err == nil {
		t.Error("half a configuration is taken")
	}
}
