package restore

import (
	"context"
	"fmt"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/loading"
	"diapause.dev/agent/recorded"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc"
	"diapause.dev/runsc/kubelet"
	"diapause.dev/runsc/volume"
	"diapause.dev/storage"
)

// opener opens the snapshots of restores, and refuses those that cannot be restored on this node.
type opener struct {
	readers     *snapshots.Readers
	loader      *loading.Loader
	facts       func(context.Context) (snapshot.Facts, error) // of this node
	volumeLimit int64                                         // for all volumes in one snapshot together, in bytes
}

// open opens the snapshot for a restore. From then on the restore reads this snapshot, and no other one with its key.
func (o *opener) open(ctx context.Context, r *restore) error {
	reader, err := o.readers.Open(ctx, snapshots.ID{Key: r.Key, UID: r.UID}, r.Store)
	if err != nil {
		return err
	}
	r.UID = reader.ID.UID
	r.meta = &reader.Manifest.Meta
	r.Scope = r.meta.Scope
	r.image = o.loader.Image(r.imageOptions(), reader)
	if r.volumes, r.payloads, err = volumesOf(reader.Manifest, o.volumeLimit); err == nil {
		if !r.Wakes || r.admitted {
			r.image.Warm(ctx) // a store takes its time for each answer to check, too
		}
		err = o.check(ctx, r, reader)
	}
	if err == nil {
		if err = recorded.Check(r.meta.Pod); err != nil {
			err = fmt.Errorf("snapshot %s: %w", r.Key, err)
		}
	}
	if err != nil {
		r.image.Release()
		return err
	}
	return nil
}

// check returns why a snapshot cannot be restored, as far as can be known without reading all of it. If an earlier
// agent began the restore, check does not compare the node with the snapshot again: the node fits, and the sandbox is
// waiting.
func (o *opener) check(ctx context.Context, r *restore, s *snapshots.Reader) error {
	if !r.revived {
		return o.fit(ctx, s)
	}
	if err := s.Check(ctx); err != nil {
		return fmt.Errorf("snapshot %s: %w", r.Key, err)
	}
	return nil
}

// Fit returns why a snapshot cannot be restored on this node, as far as can be known without reading all of it.
func (rs *Restores) Fit(ctx context.Context, s *snapshots.Reader) error { return rs.opener.fit(ctx, s) }

// fit returns why a snapshot cannot be restored on this node, as far as can be known without reading all of it.
func (o *opener) fit(ctx context.Context, s *snapshots.Reader) error {
	meta := &s.Manifest.Meta
	node, err := o.facts(ctx)
	if err == nil {
		err = meta.Scope.Validate()
	}
	if err == nil && meta.Scope == snapshot.RootfsOnly {
		err = runsc.CompatibleRootfs(meta.Facts, node)
	} else if err == nil {
		err = runsc.Compatible(meta.Facts, node)
	}
	if err == nil {
		err = s.Check(ctx)
	}
	if err != nil {
		return fmt.Errorf("snapshot %s: %w", meta.Key, err)
	}
	return nil
}

// volumesOf returns which volumes a snapshot holds, and which directories that the kubelet has written. If they are
// together larger than limit, in bytes, the error is of kind volume.ErrLimit.
func volumesOf(m *storage.Manifest, limit int64) (volumes, payloads []string, err error) {
	left := limit
	for i := range m.Files {
		name, err := loading.VolumeOf(m.Files[i].Name)
		if err != nil {
			return nil, nil, fmt.Errorf("snapshot %s: %w: %w", m.Meta.Key, errkind.ErrInvalid, err)
		}
		if name == "" {
			continue
		}
		if left -= m.Files[i].Size; left < 0 {
			return nil, nil, fmt.Errorf("snapshot %s: volume %s: %w: more than %d bytes", m.Meta.Key, name, volume.ErrLimit,
				limit)
		}
		if _, err := kubelet.ParsePayload(name); err == nil {
			payloads = append(payloads, name)
		} else {
			volumes = append(volumes, name)
		}
	}
	return volumes, payloads, nil
}
