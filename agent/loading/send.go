package loading

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"
)

// volumeRead and volumeSend are the sizes, in bytes, of one read from a volume and of one piece that is sent.
// volumeAhead is how many reads may run ahead of sending.
const (
	volumeRead  = 4 << 20
	volumeSend  = 1 << 20
	volumeAhead = 3
)

// piece is a part of a volume that is being read.
type piece struct {
	data []byte
	read chan error // receives the outcome of the read
}

// Send sends the part with a volume of some size from off on, and reads ahead of what is being sent. Each call of send
// gets the size and the next bytes.
func (i *Image) Send(ctx context.Context, part string, off, size int64,
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
				err := i.ReadAt(ctx, part, at, p.data)
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
