package cri

import (
	"maps"
	"slices"
	"testing"

	"diapause.dev/api/snapshot"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestMounts(t *testing.T) {
	container := func(name string, mounts ...*criapi.Mount) snapshot.Container {
		return snapshot.Container{Name: name, Config: encode(t, &criapi.ContainerConfig{Mounts: mounts})}
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
