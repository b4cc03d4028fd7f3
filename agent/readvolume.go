package agent

import (
	"fmt"
	"slices"

	"google.golang.org/grpc"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/storage"
	"diapause.dev/volume"
)

// The sizes, in bytes, of what is read of a volume at a time, and of what is sent.
const (
	volumeRead = 4 << 20
	volumeSend = 1 << 20
)

// volumesOf returns the names of the volumes that a snapshot holds, none of which is larger than all
// that are allowed.
func (rs *restores) volumesOf(m *storage.Manifest) (names []string, err error) {
	left := rs.cfg.VolumeLimit
	for i := range m.Files {
		name, ok, err := volume.OfPart(m.Files[i].Name)
		if err != nil {
			return nil, fmt.Errorf("snapshot %s: %w: %w", m.Meta.Key, ErrInvalid, err)
		}
		if !ok {
			continue
		}
		if left -= m.Files[i].Size; left < 0 {
			return nil, fmt.Errorf("snapshot %s: volume %s: %w: more than %d bytes", m.Meta.Key, name, volume.ErrLimit, rs.cfg.VolumeLimit)
		}
		names = append(names, name)
	}
	return names, nil
}

// ReadVolume implements localv1.ShimServer. It waits out a store that is away as long as the caller
// does.
func (s *shimService) ReadVolume(req *localv1.ReadVolumeRequest, stream grpc.ServerStreamingServer[localv1.ReadVolumeResponse]) error {
	r, err := s.restores.find(req.Request)
	if err != nil {
		return toStatus(err)
	}
	if !slices.Contains(r.volumes, req.Volume) {
		return toStatus(fmt.Errorf("%w: snapshot %s has no volume %.80q", ErrInvalid, r.Key, req.Volume))
	}
	src, part := &source{rs: s.restores, restore: r}, volume.Part(req.Volume)
	size, err := src.Size(part)
	if err != nil {
		return toStatus(err)
	}
	if req.Offset < 0 || req.Offset > size {
		return toStatus(fmt.Errorf("%w: byte %d of %d", ErrInvalid, req.Offset, size))
	}
	buf := make([]byte, min(volumeRead, size-req.Offset))
	for off := req.Offset; off < size; {
		p := buf[:min(int64(len(buf)), size-off)]
		if err := src.readPatiently(stream.Context(), part, off, p); err != nil {
			return toStatus(err)
		}
		for data := range slices.Chunk(p, volumeSend) {
			if err := stream.Send(&localv1.ReadVolumeResponse{Size: size, Data: data}); err != nil {
				return err
			}
		}
		off += int64(len(p))
	}
	return nil
}
