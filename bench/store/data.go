package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"

	"diapause.dev/agent/snapshots"
	"diapause.dev/test/tools"
)

// The snapshots of the test data, by name.
const (
	baseData     = "base"
	idleData     = "idle"
	dirtyData    = "dirty5"
	restoredData = "restored"

	rawSuffix    = ".raw"
	layoutSuffix = ".json"
)

// layout says how a snapshot is cut: file by file, the lengths of its chunks.
type layout []cutFile

type cutFile struct {
	Name   string `json:"name"`
	Chunks []int  `json:"chunks"` // bytes
}

func (l layout) write(path string) error {
	data, err := json.Marshal(l)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o644)
}

// image is a snapshot's content.
type image struct {
	raw    []byte // all files, one behind the other
	layout layout
}

// data is what is stored and restored.
type data struct {
	dir                         string // where the files are
	base, idle, dirty, restored *image
}

// prepare returns the test data, which is captured first if that has not been done yet.
func prepare(ctx context.Context, root string) (*data, error) {
	if err := tools.Python(ctx); err != nil {
		return nil, err
	}
	d := &data{dir: filepath.Join(root, ".cache", "bench-store", dataKey())}
	if _, err := os.Stat(filepath.Join(d.dir, "complete")); err != nil {
		if err := makeData(ctx, d.dir); err != nil {
			return nil, fmt.Errorf("capture test data: %w", err)
		}
	}
	for name, im := range map[string]**image{
		baseData: &d.base, idleData: &d.idle, dirtyData: &d.dirty,
		restoredData: &d.restored,
	} {
		var err error
		if *im, err = load(filepath.Join(d.dir, name)); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// path is the file with a snapshot's bytes.
func (d *data) path(name string) string { return filepath.Join(d.dir, name+rawSuffix) }

// dataKey changes with what the data depend on.
func dataKey() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "2 %d %s", snapshots.ChunkSize, heap))
	return hex.EncodeToString(sum[:6])
}

// makeData captures the test data on a bed, by this program run anew.
func makeData(ctx context.Context, dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	say("capturing the heap of a Python process in gVisor")
	cmd := exec.CommandContext(ctx, "/proc/self/exe", "-capture", dir)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	if err := cmd.Run(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "complete"), nil, 0o644)
}

// load maps a snapshot's content into memory.
func load(path string) (*image, error) {
	text, err := os.ReadFile(path + layoutSuffix)
	if err != nil {
		return nil, err
	}
	im := &image{}
	if err := json.Unmarshal(text, &im.layout); err != nil {
		return nil, fmt.Errorf("%s: %w", path+layoutSuffix, err)
	}
	f, err := os.Open(path + rawSuffix)
	if err != nil {
		return nil, err
	}
	defer f.Close() // the mapping stays
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() != int64(im.layout.size()) || info.Size() == 0 {
		return nil, fmt.Errorf("%s: %d bytes: %w", path+rawSuffix, info.Size(), errors.ErrUnsupported)
	}
	im.raw, err = unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
	return im, err
}

func (l layout) size() (n int) {
	for _, f := range l {
		for _, c := range f.Chunks {
			n += c
		}
	}
	return n
}

const page = 4096

// rewrite has a share of all pages, at random, hold other bytes: those of other pages of the image, with
// a few changed, so that they compress as the image does.
func (im *image) rewrite(share float64, r *rand.Rand) {
	pages := len(im.raw) / page
	for range int(float64(pages) * share) {
		to, from := im.raw[r.IntN(pages)*page:][:page], im.raw[r.IntN(pages)*page:][:page]
		copy(to, from)
		for range 16 {
			to[r.IntN(page)] = byte(r.Uint32())
		}
	}
}

// recut returns the image with pages.img, by far the largest of its files, cut at multiples of size.
// Where the pages of the memory file have no holes, these are its windows too; in any case a page
// keeps its place.
func (im *image) recut(size int) *image {
	out := &image{raw: im.raw}
	for _, f := range im.layout {
		out.layout = append(out.layout, f.recut(size))
	}
	return out
}

func (f cutFile) recut(size int) cutFile {
	left := layout{f}.size()
	out := cutFile{Name: f.Name}
	for left > 0 {
		n := min(size, left)
		out.Chunks = append(out.Chunks, n)
		left -= n
	}
	return out
}

// pages returns the content of pages.img, by far the largest of the files.
func (im *image) pages() (largest []byte) {
	raw := im.raw
	for _, f := range im.layout {
		n := layout{f}.size()
		if n > len(largest) {
			largest = raw[:n]
		}
		raw = raw[n:]
	}
	return largest
}

// changed returns the share of the image's pages that are not those of another at the same place.
func (im *image) changed(from *image) float64 {
	now, then, n := im.pages(), from.pages(), 0
	for off := 0; off+page <= len(now); off += page {
		if off+page > len(then) || !bytes.Equal(now[off:off+page], then[off:off+page]) {
			n++
		}
	}
	return float64(n*page) / float64(len(now))
}

// chunks yields the chunks of all files.
func (im *image) chunks(yield func(file string, raw []byte) bool) {
	raw := im.raw
	for _, f := range im.layout {
		for _, n := range f.Chunks {
			if !yield(f.Name, raw[:n:n]) {
				return
			}
			raw = raw[n:]
		}
	}
}
