package capture

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// overflow is a nameless file for what does not fit into memory. It may be encrypted, under a key that is never
// written down: nobody can read what a disk keeps of it.
type overflow struct {
	file  *os.File
	block cipher.Block // nil: not encrypted
	end   atomic.Int64 // of the highest byte written
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

// crypt encrypts or decrypts the bytes from off on, by AES-CTR. The counter is the place in the file, and no
// place is written twice.
func (o *overflow) crypt(dst, src []byte, off int64) {
	var iv, skipped [aes.BlockSize]byte
	binary.BigEndian.PutUint64(iv[8:], uint64(off/aes.BlockSize))
	stream := cipher.NewCTR(o.block, iv[:])
	skip := skipped[:off%aes.BlockSize]
	stream.XORKeyStream(skip, skip)
	stream.XORKeyStream(dst, src)
}

// write writes p at off. It may encrypt p in place. It may be called concurrently for bytes that do not overlap.
func (o *overflow) write(p []byte, off int64) error {
	if o.block != nil {
		o.crypt(p, p, off)
	}
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

// read fills p with the bytes from off on. It does not map the file: with a mapping, a failing disk would end the
// agent by SIGBUS.
func (o *overflow) read(p []byte, off int64) error {
	if off < 0 || off+int64(len(p)) > o.end.Load() {
		return fmt.Errorf("bytes %d to %d were not captured", off, off+int64(len(p)))
	}
	if _, err := o.file.ReadAt(p, off); err != nil {
		return fmt.Errorf("read %s: bytes %d to %d: %w", o.file.Name(), off, off+int64(len(p)), noEOF(err))
	}
	if o.block != nil {
		o.crypt(p, p, off)
	}
	return nil
}

// noEOF replaces io.EOF: a file that has become too short must not look like a regular end.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func (o *overflow) close() error { return o.file.Close() }
