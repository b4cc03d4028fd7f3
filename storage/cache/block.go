package cache

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// A block's file is its data and a trailer: 8 bytes of magic, and a CRC-32C over the object's name, the block's number
// (8 bytes, little-endian) and the data.
const (
	blockSize = 1 << 20
	magic     = "DIABLOCK"
	trailer   = int64(len(magic)) + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func checksum(object string, at id, data []byte) uint32 {
	sum := crc32.Update(0, castagnoli, []byte(object))
	sum = crc32.Update(sum, castagnoli, binary.LittleEndian.AppendUint64(nil, uint64(at.index)))
	return crc32.Update(sum, castagnoli, data)
}

// write writes a block's file and renames it into place.
func (c *Cache) write(object string, at id, data []byte) (err error) {
	path := c.path(at)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	temp := path + "." + rand.Text()
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		_, err = f.Write(binary.LittleEndian.AppendUint32([]byte(magic), checksum(object, at, data)))
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		_ = os.Remove(temp) // else the next Open removes it
	}
	return err
}

// touchEvery is how often a file's last use is recorded.
const touchEvery = time.Minute

var blocks = sync.Pool{New: func() any { b := make([]byte, blockSize+trailer); return &b }}

// read reads a block's file and checks it. The caller must recycle the result.
func (c *Cache) read(object string, at id, size int64) ([]byte, error) {
	f, err := os.Open(c.path(at))
	if err != nil {
		return nil, err
	}
	defer f.Close() // nothing was written
	buffer := *blocks.Get().(*[]byte)
	data := buffer[:size+trailer]
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	tail := data[size:]
	if string(tail[:len(magic)]) != magic ||
		binary.LittleEndian.Uint32(tail[len(magic):]) != checksum(object, at, data[:size]) {
		return nil, fmt.Errorf("read %s: %w", f.Name(), errDamaged)
	}
	c.touch(at)
	return data[:size], nil
}

var errDamaged = errors.New("damaged")

func (c *Cache) recycle(data []byte) {
	data = data[:cap(data)]
	blocks.Put(&data)
}

// touch records now and then that a block was used, so that the order of use survives the process.
func (c *Cache) touch(at id) {
	now := time.Now()
	c.mu.Lock()
	e := c.entries[at]
	due := e != nil && now.Sub(e.touched) > touchEvery
	if due {
		e.touched = now
	}
	c.mu.Unlock()
	if due {
		_ = os.Chtimes(c.path(at), time.Time{}, now) // the file may be gone
	}
}
