package storage

import (
	"context"
	"errors"
	"fmt"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage/failpoint"
	"diapause.dev/storage/format"
)

// Commit waits until all packs are durable and then writes the manifest, which makes the snapshot exist. meta.Key may
// be zero; otherwise it must be the writer's. If meta.Parent is nil, it is set from the options. If another writer has
// made the snapshot meanwhile, the error is ErrExists. After an error the snapshot does not exist and none of its
// objects are left, as far as the backend could be asked. A pack that could not be removed is left to Sweep.
func (w *Writer) Commit(ctx context.Context, meta snapshot.Meta) (*Manifest, error) {
	if w.ended {
		return nil, w.target.wrap(errors.New("commit after the end"))
	}
	stop := context.AfterFunc(ctx, func() { w.cancel(context.Cause(ctx)) })
	defer stop()
	defer w.Abort() // no effect after success
	if err := w.drain(); err != nil {
		return nil, w.target.wrap(err)
	}
	failpoint.PacksComplete.Hit()
	w.lineage.forget()
	w.parent = identityOf(w.parent)
	m, err := w.buildManifest(meta)
	if err != nil {
		return nil, w.target.wrap(err)
	}
	if err := w.publisher.publish(ctx, m); err != nil {
		return nil, w.target.wrap(err)
	}
	w.ended = true
	w.unwatch()
	w.cancel(nil)
	w.prune(ctx, m)
	return m, nil
}

// buildManifest makes the manifest of the packed chunks. It leaves out packs that no chunk names (a parent's), and
// numbers the others in the order in which the files name them.
func (w *Writer) buildManifest(meta snapshot.Meta) (*Manifest, error) {
	if meta.Key == (Key{}) {
		meta.Key = w.target.key
	}
	if meta.Key != w.target.key {
		return nil, fmt.Errorf("%w: commit as %s", ErrInvalidName, meta.Key)
	}
	if p := w.parent; meta.Parent == nil && p != nil {
		key := p.Meta.Key
		meta.Parent = &key
	}
	if w.lineage.lock == nil && snapshot.MustBeEncrypted(meta.UID) {
		return nil, fmt.Errorf("%w: namespace %s had a current key when the snapshot was begun, and has none now", ErrKey,
			w.target.key.Namespace)
	}
	meta.NamespaceKey = w.lineage.wrapping
	m := &Manifest{Format: format.Version, Meta: meta, DigestKey: w.lineage.digestKey, DataKey: w.lineage.lock}
	all := append(w.lineage.packs[:len(w.lineage.packs):len(w.lineage.packs)], w.packer.written()...)
	number := map[uint32]uint32{}
	for _, f := range w.queue.files {
		for i := range f.chunks {
			c := &f.chunks[i]
			if c.Codec == CodecZero {
				continue
			}
			n, ok := number[c.Pack]
			if !ok {
				n = uint32(len(m.Packs))
				number[c.Pack] = n
				m.Packs = append(m.Packs, all[c.Pack])
			}
			c.Pack = n
		}
		m.Files = append(m.Files, File{Name: f.name, Size: f.size, Chunks: f.chunks, Prints: f.prints})
	}
	return m, nil
}
