package restore

import (
	"context"
	"fmt"
	"slices"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/loading"
)

// Volume sends a volume of a restore's snapshot, or a directory in one that the kubelet wrote, from offset off on.
// Each call of send gets the size of the whole volume and the next bytes. While the store is unreachable, Volume
// retries until ctx ends.
func (rs *Restores) Volume(ctx context.Context, request, name string, off int64,
	send func(size int64, data []byte) error,
) error {
	r, err := rs.registry.find(ctx, request)
	if err != nil {
		return err
	}
	if !slices.Contains(r.volumes, name) && !slices.Contains(r.payloads, name) {
		return fmt.Errorf("%w: snapshot %s has no volume %.80q", errkind.ErrInvalid, r.Key, name)
	}
	part := loading.PartOf(name)
	size, err := (&source{rs: rs, restore: r}).Size(part)
	if err != nil {
		return err
	}
	if off < 0 || off > size {
		return fmt.Errorf("%w: byte %d of %d", errkind.ErrInvalid, off, size)
	}
	return r.image.Send(ctx, part, off, size, send)
}
