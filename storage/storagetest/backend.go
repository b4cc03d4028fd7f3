package storagetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"diapause.dev/storage"
)

// Bytes returns n bytes that do not compress. The same seed gives the same bytes.
func Bytes(seed uint64, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16)}).Read(b) // never fails
	return b
}

func create(t *testing.T, b storage.Backend, name string, data []byte) {
	t.Helper()
	if err := b.Create(t.Context(), name, bytes.NewReader(data), int64(len(data))); err != nil {
		t.Fatal(err)
	}
}

func wantContent(t *testing.T, b storage.Backend, name string, want []byte) {
	t.Helper()
	info, err := b.Stat(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, info.Size)
	if err := b.ReadAt(t.Context(), name, got, 0); err != nil {
		t.Fatal(err)
	}
	all, err := b.ReadAll(t.Context(), name, info.Size)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) || !bytes.Equal(all, want) {
		t.Fatalf("%s holds %d bytes other than the %d written", name, len(got), len(want))
	}
}

func wantKind(t *testing.T, what string, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("%s: error %v, want one that is %q", what, err, kind)
	}
}

func names(t *testing.T, b storage.Backend, prefix string) []string {
	t.Helper()
	var list []string
	err := b.List(t.Context(), prefix, func(o storage.ObjectInfo) error {
		list = append(list, o.Name)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

func testCreateRead(t *testing.T, b storage.Backend) {
	for i, size := range []int{0, 1, 4096, 1<<20 + 7} {
		name := fmt.Sprintf("ns/packs/%d", i)
		data := Bytes(uint64(i), size)
		create(t, b, name, data)
		wantContent(t, b, name, data)
		info, err := b.Stat(t.Context(), name)
		if err != nil || info.Name != name || info.Size != int64(size) {
			t.Fatalf("stat: %+v, %v", info, err)
		}
		if age := time.Since(info.Modified); age < -time.Minute || age > time.Minute {
			t.Errorf("%s is %v old", name, age)
		}
	}
}

func testCreateOnly(t *testing.T, b storage.Backend) {
	create(t, b, "a/b", []byte("first"))
	for _, data := range []string{"first", "second"} {
		err := b.Create(t.Context(), "a/b", strings.NewReader(data), int64(len(data)))
		wantKind(t, "create again", err, storage.ErrExists)
	}
	wantContent(t, b, "a/b", []byte("first"))
}

var errReader = errors.New("reader broke")

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, errReader }

func testCreateAllOrNothing(t *testing.T, b storage.Backend) {
	data := Bytes(1, 600<<10)
	half := io.LimitReader(bytes.NewReader(data), int64(len(data)/2))
	for _, test := range []struct {
		name string
		r    io.Reader
		size int
		is   error
	}{
		{"broken", io.MultiReader(half, brokenReader{}), len(data), errReader},
		{"short", bytes.NewReader(data[:len(data)-1]), len(data), nil},
		{"long", bytes.NewReader(data), len(data) - 1, nil},
		{"empty", bytes.NewReader(nil), 1, nil},
	} {
		err := b.Create(t.Context(), "x/"+test.name, test.r, int64(test.size))
		if err == nil || test.is != nil && !errors.Is(err, test.is) {
			t.Errorf("%s: error %v", test.name, err)
		}
	}
	if left := names(t, b, ""); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
	create(t, b, "x/broken", data) // the name is free
}

func testCreateRace(t *testing.T, b storage.Backend) {
	const creators = 8
	errs := make([]error, creators)
	var wg sync.WaitGroup
	for i := range creators {
		wg.Go(func() {
			data := Bytes(uint64(i), 1000)
			errs[i] = b.Create(t.Context(), "race/one", bytes.NewReader(data), 1000)
		})
	}
	wg.Wait()
	winner := -1
	for i, err := range errs {
		switch {
		case err == nil && winner >= 0:
			t.Fatal("two creators succeeded")
		case err == nil:
			winner = i
		default:
			wantKind(t, "loser", err, storage.ErrExists)
		}
	}
	if winner < 0 {
		t.Fatal("no creator succeeded")
	}
	wantContent(t, b, "race/one", Bytes(uint64(winner), 1000))
}

// testCreateBesideDelete creates objects while the last other objects of their directory are deleted.
func testCreateBesideDelete(t *testing.T, b storage.Backend) {
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range 25 {
				name := fmt.Sprintf("deep/er/still/%d-%d", worker, i)
				if err := b.Create(t.Context(), name, strings.NewReader("x"), 1); err != nil {
					t.Error(err)
				}
				if err := b.Delete(t.Context(), name); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if left := names(t, b, ""); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

func testReplace(t *testing.T, b storage.Backend) {
	for _, data := range []string{"one", "another, longer", ""} {
		if err := b.Replace(t.Context(), "ns/snapshots/s/workingset", []byte(data)); err != nil {
			t.Fatal(err)
		}
		wantContent(t, b, "ns/snapshots/s/workingset", []byte(data))
	}
}

func testReadBounds(t *testing.T, b storage.Backend) {
	data := Bytes(3, 5000)
	create(t, b, "o", data)
	for _, test := range []struct {
		off, n int
		kind   error
	}{
		{0, 5000, nil},
		{1, 4999, nil},
		{4999, 1, nil},
		{100, 3000, nil},
		{0, 0, nil},
		{0, 5001, storage.ErrTruncated},
		{4999, 2, storage.ErrTruncated},
		{5000, 1, storage.ErrTruncated},
		{1 << 40, 1, storage.ErrTruncated},
	} {
		p := make([]byte, test.n)
		err := b.ReadAt(t.Context(), "o", p, int64(test.off))
		if test.kind != nil {
			wantKind(t, fmt.Sprintf("read %d+%d", test.off, test.n), err, test.kind)
			continue
		}
		if err != nil || !bytes.Equal(p, data[test.off:test.off+test.n]) {
			t.Errorf("read %d+%d: wrong bytes or error %v", test.off, test.n, err)
		}
	}
	_, err := b.ReadAll(t.Context(), "o", 4999)
	wantKind(t, "read all of a larger one", err, storage.ErrTooLarge)
	if err := b.ReadAt(t.Context(), "o", make([]byte, 1), -1); err == nil {
		t.Error("read at -1 succeeded")
	}
}

func testAbsent(t *testing.T, b storage.Backend) {
	create(t, b, "here/too", []byte("x"))
	for _, name := range []string{"none", "here", "here/none", "here/too/deep"} {
		_, err := b.Stat(t.Context(), name)
		wantKind(t, "stat "+name, err, storage.ErrNotFound)
		wantKind(t, "read "+name, b.ReadAt(t.Context(), name, make([]byte, 1), 0), storage.ErrNotFound)
		wantKind(t, "delete "+name, b.Delete(t.Context(), name), storage.ErrNotFound)
		_, err = b.ReadAll(t.Context(), name, 10)
		wantKind(t, "read all of "+name, err, storage.ErrNotFound)
	}
	if err := b.Delete(t.Context(), "here/too"); err != nil {
		t.Fatal(err)
	}
	wantKind(t, "delete again", b.Delete(t.Context(), "here/too"), storage.ErrNotFound)
}

func testNames(t *testing.T, b storage.Backend) {
	for _, name := range []string{
		"", "/", "a/", "/a", "a//b", ".", "..", "../a", "a/../b", "a/..", ".tmp/x", "a/.b", "a\x00b", "a b", "A", "ä", "ａ",
		"a\\b", "a%2fb", "a?b", "a#b", "a\nb", strings.Repeat("a", 256), strings.Repeat("a/", 500) + "a",
	} {
		what := fmt.Sprintf("%.40q", name)
		wantKind(t, "create "+what, b.Create(t.Context(), name, strings.NewReader("x"), 1), storage.ErrInvalidName)
		wantKind(t, "replace "+what, b.Replace(t.Context(), name, nil), storage.ErrInvalidName)
		wantKind(t, "read "+what, b.ReadAt(t.Context(), name, make([]byte, 1), 0), storage.ErrInvalidName)
		wantKind(t, "delete "+what, b.Delete(t.Context(), name), storage.ErrInvalidName)
		_, err := b.Stat(t.Context(), name)
		wantKind(t, "stat "+what, err, storage.ErrInvalidName)
		_, err = b.ReadAll(t.Context(), name, 10)
		wantKind(t, "read all of "+what, err, storage.ErrInvalidName)
	}
	wantKind(t, "list", b.List(t.Context(), "../", nil), storage.ErrInvalidName)
	long := strings.Repeat("a", 253) + "/snapshots/" + strings.Repeat("b", 253) + "/manifest"
	create(t, b, long, []byte("x"))
	wantContent(t, b, long, []byte("x"))
}

func testList(t *testing.T, b storage.Backend) {
	all := []string{
		"a", "a-b/packs/1", "a.json", "b/packs/1", "b/packs/12", "b/packs/2", "b/snapshots/s/manifest",
		"bb/packs/1",
	}
	for _, name := range all {
		create(t, b, name, []byte(name))
	}
	for _, prefix := range []string{
		"", "a", "b", "b/", "b/p", "b/packs/", "b/packs/1", "b/packs/1/", "c", "c/d/",
		"b/snapshots/s/manifest",
	} {
		var want []string
		for _, name := range all {
			if strings.HasPrefix(name, prefix) {
				want = append(want, name)
			}
		}
		if got := names(t, b, prefix); !slices.Equal(got, want) {
			t.Errorf("list %q: %q, want %q", prefix, got, want)
		}
	}
	stop := errors.New("stop")
	calls := 0
	err := b.List(t.Context(), "", func(o storage.ObjectInfo) error {
		calls++
		if o.Size != int64(len(o.Name)) {
			t.Errorf("%s: size %d", o.Name, o.Size)
		}
		return stop
	})
	if err != stop || calls != 1 {
		t.Errorf("a stopped list: %d calls, error %v", calls, err)
	}
}

func testListDelete(t *testing.T, b storage.Backend) {
	for i := range 5 {
		create(t, b, fmt.Sprintf("d/%d/o", i), []byte("x"))
	}
	err := b.List(t.Context(), "d/", func(o storage.ObjectInfo) error { return b.Delete(t.Context(), o.Name) })
	if err != nil {
		t.Fatal(err)
	}
	if left := names(t, b, ""); len(left) != 0 {
		t.Errorf("left behind: %q", left)
	}
}

func testCancelled(t *testing.T, b storage.Backend) {
	create(t, b, "here", []byte("x"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	wantKind(t, "create", b.Create(ctx, "new", strings.NewReader("x"), 1), context.Canceled)
	wantKind(t, "replace", b.Replace(ctx, "new", []byte("x")), context.Canceled)
	wantKind(t, "read", b.ReadAt(ctx, "here", make([]byte, 1), 0), context.Canceled)
	wantKind(t, "delete", b.Delete(ctx, "here"), context.Canceled)
	wantKind(t, "list", b.List(ctx, "", func(storage.ObjectInfo) error { return nil }), context.Canceled)
	_, err := b.Stat(ctx, "here")
	wantKind(t, "stat", err, context.Canceled)
	_, err = b.ReadAll(ctx, "here", 10)
	wantKind(t, "read all", err, context.Canceled)
	if got := names(t, b, ""); !slices.Equal(got, []string{"here"}) {
		t.Errorf("afterwards: %q", got)
	}
}
