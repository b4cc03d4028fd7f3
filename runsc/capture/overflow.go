package capture

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// overflow is a nameless file for what does not fit into memory. It may be encrypted under a key that
// is never written down: what a disk keeps of it, nobody reads.
type overflow struct {
	file   *os.File
	block  cipher.Block // nil: not encrypted
	end    atomic.Int64 // of the highest byte written
	mapped []byte       // the file, once seal was called
}

func newOverflow(dir string, encrypt bool) (*overflow, error) {
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open overflow file in %s: %w", dir, err)
	}
	o := &overflow{file: os.NewFile(uintptr(fd), "overflow file in "+dir)}
	if encrypt {
		var key [32]byte
		_, _ = rand.Read(key[:]) // never fails
		if o.block, err = aes.NewCipher(key[:]); err != nil {
			panic(err) // the key has the right length
		}
	}
	return o, nil
}

// crypt encrypts, or decrypts, the bytes from off on: AES-CTR, whose counter is the place in the file.
// No place is written twice. It is a copy when nothing is encrypted.
func (o *overflow) crypt(dst, src []byte, off int64) {
	if o.block == nil {
		copy(dst, src)
		return
	}
	var iv, skipped [aes.BlockSize]byte
	binary.BigEndian.PutUint64(iv[8:], uint64(off/aes.BlockSize))
	stream := cipher.NewCTR(o.block, iv[:])
	skip := skipped[:off%aes.BlockSize]
	stream.XORKeyStream(skip, skip)
	stream.XORKeyStream(dst, src)
}

// write writes p, which it may encrypt in place, at off. It is called concurrently for bytes that do not
// overlap.
func (o *overflow) write(p []byte, off int64) error {
	o.crypt(p, p, off)
	if _, err := o.file.WriteAt(p, off); err != nil {
		return fmt.Errorf("write overflow: %w", err)
	}
	end := off + int64(len(p))
	for {
		old := o.end.Load()
		if old >= end || o.end.CompareAndSwap(old, end) {
			return nil
		}
	}
}

// seal makes what was written readable.
func (o *overflow) seal() error {
	n := o.end.Load()
	if n == 0 {
		return nil
	}
	m, err := unix.Mmap(int(o.file.Fd()), 0, int(n), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map overflow: %w", err)
	}
	o.mapped = m
	return nil
}

// read fills p with the bytes from off on, which must be among those mapped.
func (o *overflow) read(p []byte, off int64) { o.crypt(p, o.mapped[off:off+int64(len(p))], off) }

func (o *overflow) close() error {
	if o.mapped != nil {
		if err := unix.Munmap(o.mapped); err != nil {
			return fmt.Errorf("unmap overflow: %w", err)
		}
		o.mapped = nil
	}
	return o.file.Close()
}
