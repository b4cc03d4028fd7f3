package restore

import (
	"context"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"diapause.dev/agent/errkind"
	"diapause.dev/runsc/kubelet"
	"diapause.dev/runsc/volume"
	"diapause.dev/storage"
)

// volumeRead and volumeSend are the sizes, in bytes, of one read from a volume and of one piece that is sent.
// volumeAhead is how many reads may run ahead of sending.
const (
	volumeRead  = 4 << 20
	volumeSend  = 1 << 20
	volumeAhead = 3
)

// isVolume reports whether a part of a snapshot holds a volume, or a part of one.
func isVolume(part string) bool {
	name, err := volumeOf(part)
	return err == nil && name != ""
}

// volumeOf returns the name under which a shim asks for a part of a snapshot: that of a volume, or of a directory which
// the kubelet has written. Empty: the part holds neither.
func volumeOf(part string) (name string, err error) {
	name, ok, err := volume.OfPart(part)
	if ok || err != nil {
		return name, err
	}
	p, ok, err := volume.OfPayloadPart(part)
	if !ok || err != nil {
		return "", err
	}
	return p.String(), nil
}

// partOf is the inverse of volumeOf.
func partOf(name string) string {
	if p, err := kubelet.ParsePayload(name); err == nil {
		return volume.PayloadPart(p)
	}
	return volume.Part(name)
}

// findVolumes notes which volumes a restore's snapshot holds. If they are together larger than VolumeLimit, the error
// is of kind volume.ErrLimit.
func (rs *Restores) findVolumes(r *restore, m *storage.Manifest) error {
	left := rs.VolumeLimit
	var volumes, payloads []string
	for i := range m.Files {
		name, err := volumeOf(m.Files[i].Name)
		if err != nil {
			return fmt.Errorf("snapshot %s: %w: %w", m.Meta.Key, errkind.ErrInvalid, err)
		}
		if name == "" {
			continue
		}
		if left -= m.Files[i].Size; left < 0 {
			return fmt.Errorf("snapshot %s: volume %s: %w: more than %d bytes", m.Meta.Key, name, volume.ErrLimit,
				rs.VolumeLimit)
		}
		if _, err := kubelet.ParsePayload(name); err == nil {
			payloads = append(payloads, name)
		} else {
			volumes = append(volumes, name)
		}
	}
	r.volumes, r.payloads = volumes, payloads
	return nil
}

// Payloads returns the directories which the kubelet has written and that a pod needs to wake, by a request.
func (rs *Restores) Payloads(ctx context.Context, request string) ([]string, error) {
	r, err := rs.find(ctx, request)
	if err != nil {
		return nil, err
	}
	return r.payloads, nil
}

// Volume sends a volume of a restore's snapshot, or a directory in one that the kubelet wrote, from offset off on.
// Each call of send gets the size of the whole volume and the next bytes. While the store is unreachable, Volume
// retries until ctx ends.
func (rs *Restores) Volume(ctx context.Context, request, name string, off int64,
	send func(size int64, data []byte) error,
) error {
	r, err := rs.find(ctx, request)
	if err != nil {
		return err
	}
	if !slices.Contains(r.volumes, name) && !slices.Contains(r.payloads, name) {
		return fmt.Errorf("%w: snapshot %s has no volume %.80q", errkind.ErrInvalid, r.Key, name)
	}
	src, part := &source{rs: rs, restore: r}, partOf(name)
	size, err := src.Size(part)
	if err != nil {
		return err
	}
	if off < 0 || off > size {
		return fmt.Errorf("%w: byte %d of %d", errkind.ErrInvalid, off, size)
	}
	return src.send(ctx, part, off, size, send)
}

// piece is a part of a volume that is being read.
type piece struct {
	data []byte
	read chan error // receives the outcome of the read
}

// send sends a volume from off on, and reads ahead of what is being sent.
func (s *source) send(ctx context.Context, part string, off, size int64,
	send func(size int64, data []byte) error,
) error {
	g, ctx := errgroup.WithContext(ctx)
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
				if err := send(size, data); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return g.Wait()
}
