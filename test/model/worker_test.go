package model

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/dir"
	"diapause.dev/storage/fault"
	"diapause.dev/storage/storagetest"
)

// node is the environment variable that makes the test binary a node, and says in JSON which.
const nodeVariable = "DIAPAUSE_TEST_NODE"

func TestMain(m *testing.M) {
	if text := os.Getenv(nodeVariable); text != "" {
		if err := serve(context.Background(), text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(3)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// nodeConfig says what a node is.
type nodeConfig struct {
	Stores []string      // their directories
	Skew   time.Duration // by which its clock is ahead
}

// The operations.
const (
	opPut       = "put"
	opRestore   = "restore"
	opRemove    = "remove"
	opVerify    = "verify"
	opReplicate = "replicate"
	opSweep     = "sweep"
)

// command is an operation that a node is told to do.
type command struct {
	Op      string
	Store   int // index
	From    int // of a replication
	Key     storage.Key
	Parent  string    // of a put, or empty
	UID     string    // of a put
	Content []uint64  // seeds of the chunks: to put, or to be expected
	Chaos   chaosPlan // what goes wrong
	Timeout time.Duration
	Grace   time.Duration // of a sweep
}

// answer is what came of it.
type answer struct {
	Error     string
	Exists    bool // ErrExists
	NotFound  bool // ErrNotFound
	WrongByte string
	Swept     int
	Faults    int // that were injected
}

// serve does what standard input says, line by line, until it ends.
func serve(ctx context.Context, text string) error {
	var config nodeConfig
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return err
	}
	n, err := openNode(ctx, config)
	if err != nil {
		return err
	}
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var c command
		if err := in.Decode(&c); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := out.Encode(n.do(ctx, c)); err != nil {
			return err
		}
	}
}

// options are those of all stores: one of the namespaces is encrypted.
var options = storage.Options{Keyring: keyring{}}

type keyring struct{}

// Keys implements storage.Keyring.
func (keyring) Keys(namespace string) (storage.Keys, error) {
	if namespace == "green" {
		return storage.Keys{Current: &storage.Secret{1, 2, 3}}, nil
	}
	return storage.Keys{Plain: storage.PlainAll}, nil
}

// node is a process over the stores.
type node struct {
	stores []*storage.Store
	chaos  *chaos
}

func openNode(ctx context.Context, config nodeConfig) (*node, error) {
	n := &node{chaos: &chaos{}}
	for _, path := range config.Stores {
		b, err := dir.Open(path)
		if err != nil {
			return nil, err
		}
		s, err := storage.Open(ctx, fault.New(&skewed{b, config.Skew}, n.chaos.hook), options)
		if err != nil {
			return nil, err
		}
		n.stores = append(n.stores, s)
	}
	return n, nil
}

// skewed is a backend as a node sees it whose clock is ahead: to it, all objects are older.
type skewed struct {
	storage.Backend
	ahead time.Duration
}

func (b *skewed) Stat(ctx context.Context, name string) (storage.ObjectInfo, error) {
	info, err := b.Backend.Stat(ctx, name)
	info.Modified = info.Modified.Add(-b.ahead)
	return info, err
}

func (b *skewed) List(ctx context.Context, prefix string, fn func(storage.ObjectInfo) error) error {
	return b.Backend.List(ctx, prefix, func(info storage.ObjectInfo) error {
		info.Modified = info.Modified.Add(-b.ahead)
		return fn(info)
	})
}

// do does one operation.
func (n *node) do(ctx context.Context, c command) (a answer) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	n.chaos.begin(c.Chaos)
	err := n.run(ctx, c, &a)
	a.Faults = n.chaos.end()
	if err != nil {
		a.Error = err.Error()
		a.Exists, a.NotFound = errors.Is(err, storage.ErrExists), errors.Is(err, storage.ErrNotFound)
	}
	return a
}

func (n *node) run(ctx context.Context, c command, a *answer) error {
	s := n.stores[c.Store]
	switch c.Op {
	case opPut:
		return put(ctx, s, c)
	case opRestore:
		return restore(ctx, s, c, a)
	case opRemove:
		return s.Remove(ctx, c.Key)
	case opVerify:
		m, err := s.Manifest(ctx, c.Key)
		if err != nil {
			return err
		}
		return s.Verify(ctx, m, storage.VerifyOptions{ReadData: true})
	case opReplicate:
		return storage.Replicate(ctx, s, n.stores[c.From], c.Key, nil)
	case opSweep:
		r, err := s.Sweep(ctx, storage.SweepOptions{Grace: c.Grace})
		a.Swept = r.Deleted
		return err
	}
	return fmt.Errorf("no such operation: %q", c.Op)
}

// chunk is the content of a chunk; seed 0 is a zero chunk.
func chunk(seed uint64) []byte {
	size := 500 + int(seed%7)*300
	if seed == 0 {
		return make([]byte, 1000)
	}
	if seed%3 == 0 {
		return bytes.Repeat(storagetest.Bytes(seed, 50), size/50)
	}
	return storagetest.Bytes(seed, size)
}

const file = "pages.img"

func put(ctx context.Context, s *storage.Store, c command) error {
	var o storage.WriterOptions
	if c.Parent != "" {
		var err error
		if o.Parent, err = s.Manifest(ctx, storage.Key{Namespace: c.Key.Namespace, Name: c.Parent}); err != nil {
			return fmt.Errorf("parent: %w", err)
		}
	}
	w, err := s.NewWriter(ctx, c.Key, o)
	if err != nil {
		return err
	}
	defer w.Abort()
	for _, seed := range c.Content {
		if err := w.File(file).Chunk(chunk(seed)); err != nil {
			return err
		}
	}
	_, err = w.Commit(ctx, snapshot.Meta{UID: c.UID})
	return err
}

// restore reads a snapshot and compares every byte.
func restore(ctx context.Context, s *storage.Store, c command, a *answer) error {
	m, err := s.Manifest(ctx, c.Key)
	if err != nil {
		return err
	}
	r := storage.NewReader(m, s)
	defer r.Close() // nothing was written
	var want []byte
	for _, seed := range c.Content {
		want = append(want, chunk(seed)...)
	}
	f, ok := m.File(file)
	if !ok || f.Size != int64(len(want)) {
		a.WrongByte = fmt.Sprintf("%d bytes expected, the manifest has %v", len(want), f)
		return nil
	}
	got := make([]byte, len(want))
	if err := r.ReadAt(ctx, file, 0, [][]byte{got[:len(got)/3], got[len(got)/3:]}); err != nil {
		return err
	}
	if !bytes.Equal(got, want) {
		a.WrongByte = "the bytes are not those that were put"
	}
	return nil
}
