package capture

import (
	"errors"
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"
	pb "gvisor.dev/gvisor/pkg/sentry/fscheckpoint/fscheckpoint_proto_go_proto"
	"gvisor.dev/gvisor/pkg/sentry/state/checkpointfiles"
)

// Place is where a container mounts a volume.
type Place struct{ Container, Path string }

// maxManifest bounds the manifest of saved files, in bytes. It has a few hundred bytes for each volume and
// container.
const maxManifest = 1 << 20

// maxEntry bounds the size, in bytes, of an entry that is copied.
const maxEntry = 64 << 10

// Share makes the files of volumes that were saved without memory come back wherever the volumes are mounted.
// Each volume is given by its places. GVisor records only the place at which a volume was mounted first. In a
// restore it looks the files up by the place that is mounted first then. If the containers start in another
// order, that is another place.
func (im *Image) Share(volumes [][]Place) error {
	i := slices.IndexFunc(im.Small, func(f Small) bool { return f.Name == checkpointfiles.FSCheckpointManifestFileName })
	if i < 0 {
		return fmt.Errorf("no %s: %w", checkpointfiles.FSCheckpointManifestFileName, ErrIncomplete)
	}
	if n := len(im.Small[i].Data); n > maxManifest {
		return fmt.Errorf("%s has %d bytes, more than %d", im.Small[i].Name, n, maxManifest)
	}
	var m pb.Manifest
	err := proto.Unmarshal(im.Small[i].Data, &m)
	if err != nil {
		return fmt.Errorf("%s: %w", im.Small[i].Name, err)
	}
	for _, places := range volumes {
		var errs [2]error
		m.MemoryFiles, errs[0] = shared(m.MemoryFiles, places)
		m.Tmpfs, errs[1] = shared(m.Tmpfs, places)
		if err := errors.Join(errs[:]...); err != nil {
			return fmt.Errorf("%s: %w", im.Small[i].Name, err)
		}
	}
	if im.Small[i].Data, err = proto.Marshal(&m); err != nil {
		return fmt.Errorf("%s: %w", im.Small[i].Name, err)
	}
	return nil
}

// kept is an entry of the manifest.
type kept interface {
	proto.Message
	GetResourceId() *pb.ResourceID
}

// shared adds an entry for each of the places that has none, if there is one for any of them.
func shared[E kept](entries []E, places []Place) ([]E, error) {
	at := func(p Place) int {
		return slices.IndexFunc(entries, func(e E) bool {
			id := e.GetResourceId()
			return id != nil && id.ContainerName == p.Container && id.Path == p.Path
		})
	}
	first := slices.IndexFunc(places, func(p Place) bool { return at(p) >= 0 })
	if first < 0 {
		return entries, nil
	}
	original := entries[at(places[first])]
	if n := proto.Size(original); n > maxEntry {
		return nil, fmt.Errorf("the entry of volume %s of container %s has %d bytes, more than %d", places[first].Path,
			places[first].Container, n, maxEntry)
	}
	for _, p := range places {
		if at(p) >= 0 {
			continue
		}
		e := proto.CloneOf(original)
		e.GetResourceId().ContainerName, e.GetResourceId().Path = p.Container, p.Path
		entries = append(entries, e)
	}
	return entries, nil
}
