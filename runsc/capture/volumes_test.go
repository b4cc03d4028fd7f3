package capture

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	pb "gvisor.dev/gvisor/pkg/sentry/fscheckpoint/fscheckpoint_proto_go_proto"
	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"
)

// manifest returns a manifest in which gVisor has saved a tmpfs for each place, with its files from offset i on.
func manifest(t testing.TB, places ...Place) []byte {
	t.Helper()
	m := &pb.Manifest{Version: 1}
	for i, p := range places {
		id := &pb.ResourceID{ContainerName: p.Container, Path: p.Path}
		m.MemoryFiles = append(m.MemoryFiles, &pb.MemoryFile{ResourceId: id, PagesStart: uint64(i)})
		m.Tmpfs = append(m.Tmpfs, &pb.Tmpfs{ResourceId: id, TarStart: uint64(i)})
	}
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestShare(t *testing.T) {
	one := []Place{{"a", "/x"}, {"b", "/y"}, {"b", "/z"}}
	im := &Image{Small: []Small{
		{"other", nil},
		{checkpointfiles.FSCheckpointManifestFileName, manifest(t, Place{"a", "/"}, Place{"b", "/y"}, Place{"c", "/own"})},
	}}
	if err := im.Share([][]Place{one, {{"c", "/host"}, {"a", "/host"}}}); err != nil {
		t.Fatal(err)
	}
	var m pb.Manifest
	if err := proto.Unmarshal(im.Small[1].Data, &m); err != nil {
		t.Fatal(err)
	}
	var memory, trees []string
	for _, e := range m.MemoryFiles {
		memory = append(memory, fmt.Sprint(e.ResourceId.ContainerName, e.ResourceId.Path, e.PagesStart))
	}
	for _, e := range m.Tmpfs {
		trees = append(trees, fmt.Sprint(e.ResourceId.ContainerName, e.ResourceId.Path, e.TarStart))
	}
	want := []string{"a/0", "b/y1", "c/own2", "a/x1", "b/z1"}
	if !slices.Equal(memory, want) || !slices.Equal(trees, want) {
		t.Errorf("memory files %v, trees %v, want %v", memory, trees, want)
	}
}

func TestShareRefuses(t *testing.T) {
	long := Place{"a", "/" + strings.Repeat("x", maxEntry)}
	for name, im := range map[string]*Image{
		"none":     {},
		"no proto": {Small: []Small{{checkpointfiles.FSCheckpointManifestFileName, []byte{0xff}}}},
		"bulky":    {Small: []Small{{checkpointfiles.FSCheckpointManifestFileName, make([]byte, maxManifest+1)}}},
		"long":     {Small: []Small{{checkpointfiles.FSCheckpointManifestFileName, manifest(t, long)}}},
	} {
		if err := im.Share([][]Place{{long, {"b", "/y"}}}); err == nil {
			t.Errorf("a manifest that is %s is taken", name)
		}
	}
}

// FuzzShare shares volumes of manifests that no sandbox would write.
func FuzzShare(f *testing.F) {
	f.Add(manifest(f, Place{"a", "/"}, Place{"a", "/x"}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		im := &Image{Small: []Small{{checkpointfiles.FSCheckpointManifestFileName, b}}}
		if err := im.Share([][]Place{{{"a", "/x"}, {"", ""}}}); err != nil {
			return
		}
		was := im.Small[0].Data
		if err := im.Share([][]Place{{{"a", "/x"}, {"", ""}}}); err != nil || !slices.Equal(im.Small[0].Data, was) {
			t.Errorf("shared again, %x is %x: %v", was, im.Small[0].Data, err)
		}
	})
}
