// Command kopia stores files in a fresh kopia repository on a directory, one after the other, each
// as one object in a session of its own, reads the first one back, and prints as JSON what that took. It is
// a module of its own, so that kopia's dependencies are not Diapause's.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/kopia/kopia/repo"
	"github.com/kopia/kopia/repo/blob"
	"github.com/kopia/kopia/repo/format"
	"github.com/kopia/kopia/repo/object"
)

// compression is kopia's nearest to what Diapause uses.
const compression = "zstd-fastest"

const password = "bench"

// report is what is printed.
type report struct {
	Writes  []written `json:"writes"`
	Read    float64   `json:"read_seconds"` // of the first object, whole
	PeakRSS int64     `json:"peak_rss"`     // bytes, of the whole run
}

// written is one file.
type written struct {
	Seconds float64 `json:"seconds"`
	Stored  int64   `json:"stored_bytes"` // that the directory grew by
	Objects int     `json:"requests"`     // files that were added to it
}

func main() {
	var p peer
	flag.StringVar(&p.dir, "dir", "", "empty directory to work in")
	flag.StringVar(&p.splitter, "splitter", "", "how objects are cut; empty: kopia's default")
	flag.Float64Var(&p.up, "up", 0, "bytes per second written at most; 0: no limit")
	flag.Parse()
	r, err := p.run(context.Background(), flag.Args())
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kopia:", err)
		os.Exit(1)
	}
}

// peer is a repository and how it is used.
type peer struct {
	dir      string
	splitter string
	up       float64
	repo     repo.Repository
}

func (p *peer) run(ctx context.Context, files []string) (r report, err error) {
	if err := p.open(ctx); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.repo.Close(ctx)) }()
	var first object.ID
	for i, name := range files {
		w, id, err := p.write(ctx, name)
		if err != nil {
			return r, fmt.Errorf("write %s: %w", name, err)
		}
		if i == 0 {
			first = id
		}
		r.Writes = append(r.Writes, w)
	}
	if r.Read, err = p.read(ctx, first); err != nil {
		return r, fmt.Errorf("read back: %w", err)
	}
	r.PeakRSS, err = peakRSS()
	return r, err
}

// peakRSS is the most memory that this process has had, in bytes. What getrusage says begins with
// what the process had before it became this program.
func peakRSS() (int64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kb << 10, err
		}
	}
	return 0, errors.New("the kernel does not say how much memory was used")
}

func (p *peer) store() string { return filepath.Join(p.dir, "store") }

// open makes the repository and opens it, without a cache of contents on the node.
func (p *peer) open(ctx context.Context) error {
	blob.AddSupportedStorage(wireType, wireOptions{}, newWire)
	st, err := newWire(ctx, &wireOptions{Path: p.store(), Up: p.up}, true)
	if err != nil {
		return err
	}
	o := &repo.NewRepositoryOptions{ObjectFormat: format.ObjectFormat{Splitter: p.splitter}}
	if err := repo.Initialize(ctx, st, o, password); err != nil {
		return fmt.Errorf("make the repository: %w", err)
	}
	config := filepath.Join(p.dir, "config")
	if err := repo.Connect(ctx, config, st, password, &repo.ConnectOptions{}); err != nil {
		return fmt.Errorf("connect to the repository: %w", err)
	}
	p.repo, err = repo.Open(ctx, config, password, &repo.Options{DisableRepositoryLog: true})
	return err
}

// write stores a file as an object of a session of its own.
func (p *peer) write(ctx context.Context, name string) (w written, id object.ID, err error) {
	f, err := os.Open(name)
	if err != nil {
		return w, id, err
	}
	defer f.Close()
	size, objects, err := usage(p.store())
	if err != nil {
		return w, id, err
	}
	began := time.Now()
	err = repo.WriteSession(ctx, p.repo, repo.WriteSessionOptions{},
		func(ctx context.Context, s repo.RepositoryWriter) error {
			ow := s.NewObjectWriter(ctx, object.WriterOptions{Compressor: compression, AsyncWrites: runtime.GOMAXPROCS(0)})
			defer ow.Close()
			if _, err := io.Copy(ow, f); err != nil {
				return err
			}
			id, err = ow.Result()
			return err
		})
	if err != nil {
		return w, id, err
	}
	w.Seconds = time.Since(began).Seconds()
	after, objectsAfter, err := usage(p.store())
	w.Stored, w.Objects = after-size, objectsAfter-objects
	return w, id, err
}

// read reads an object whole and returns how many seconds that took.
func (p *peer) read(ctx context.Context, id object.ID) (float64, error) {
	began := time.Now()
	r, err := p.repo.OpenObject(ctx, id)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	_, err = io.CopyBuffer(io.Discard, struct{ io.Reader }{r}, make([]byte, 1<<20))
	return time.Since(began).Seconds(), err
}

// usage returns the bytes and the number of files below a directory.
func usage(dir string) (size int64, files int, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			size += info.Size()
			files++
		}
		return err
	})
	return size, files, err
}
