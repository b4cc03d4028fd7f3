package agent

import (
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	"diapause.dev/agent/errkind"
	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/runsc/volume"
	"diapause.dev/storage"
)

// The sizes, in bytes, of what is read of a volume at a time, and of what is sent; and how many reads are begun
// before one is sent.
const (
	volumeRead  = 4 << 20
	volumeSend  = 1 << 20
	volumeAhead = 3
)

// isVolume reports whether a part of a snapshot holds a volume.
func isVolume(part string) bool {
	_, ok, err := volume.OfPart(part)
	return ok && err == nil
}

// volumesOf returns the names of the volumes that a snapshot holds, none of which is larger than all
// that are allowed.
func (rs *restores) volumesOf(m *storage.Manifest) (names []string, err error) {
	left := rs.cfg.VolumeLimit
	for i := range m.Files {
		name, ok, err := volume.OfPart(m.Files[i].Name)
		if err != nil {
			return nil, fmt.Errorf("snapshot %s: %w: %w", m.Meta.Key, errkind.ErrInvalid, err)
		}
		if !ok {
			continue
		}
		if left -= m.Files[i].Size; left < 0 {
			return nil, fmt.Errorf("snapshot %s: volume %s: %w: more than %d bytes", m.Meta.Key, name, volume.ErrLimit,
				rs.cfg.VolumeLimit)
		}
		names = append(names, name)
	}
	return names, nil
}

// ReadVolume implements localv1.ShimServer. It waits out a store that is away as long as the caller
// does.
func (s *shimService) ReadVolume(req *localv1.ReadVolumeRequest,
	stream grpc.ServerStreamingServer[localv1.ReadVolumeResponse],
) error {
	r, err := s.restores.find(stream.Context(), req.Request)
	if err != nil {
		return toStatus(err)
	}
	if !slices.Contains(r.volumes, req.Volume) {
		return toStatus(fmt.Errorf("%w: snapshot %s has no volume %.80q", errkind.ErrInvalid, r.Key, req.Volume))
	}
	src, part := &source{rs: s.restores, restore: r}, volume.Part(req.Volume)
	size, err := src.Size(part)
	if err != nil {
		return toStatus(err)
	}
	if req.Offset < 0 || req.Offset > size {
		return toStatus(fmt.Errorf("%w: byte %d of %d", errkind.ErrInvalid, req.Offset, size))
	}
	return toStatus(src.send(stream, part, req.Offset, size))
}

// piece is a part of a volume that is being read.
type piece struct {
	data []byte
	read chan error // holds one once it has been
}

// send sends a volume from off on, and reads ahead of what is being sent.
func (s *source) send(stream grpc.ServerStreamingServer[localv1.ReadVolumeResponse], part string, off,
	size int64,
) error {
	g, ctx := errgroup.WithContext(stream.Context())
	pieces := make(chan piece, volumeAhead)
	g.Go(func() error {
		defer close(pieces)
		for ; off < size; off += volumeRead {
			p, at := piece{make([]byte, min(volumeRead, size-off)), make(chan error, 1)}, off
			select {
			case pieces <- p:
			case <-ctx.Done():
				return ctx.Err()
			}
			g.Go(func() error {
				err := s.readPatiently(ctx, part, at, p.data)
				p.read <- err
				return err
			})
		}
		return nil
	})
	g.Go(func() error {
		for p := range pieces {
			if err := <-p.read; err != nil {
				return err
			}
			for data := range slices.Chunk(p.data, volumeSend) {
				if err := stream.Send(&localv1.ReadVolumeResponse{Size: size, Data: data}); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return g.Wait()
}
