package volume

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"diapause.dev/test/privileged"
)

// stream is a Sink in memory.
type stream struct {
	bytes.Buffer
	cuts []int
}

func (s *stream) Cut() { s.cuts = append(s.cuts, s.Len()) }

const plenty = 1 << 40

func save(t testing.TB, dir string) *stream {
	t.Helper()
	s := new(stream)
	must(t, saveTo(t, dir, s, plenty))
	return s
}

func saveTo(t testing.TB, dir string, s *stream, limit int64) error {
	t.Helper()
	d, err := Open("/", dir)
	must(t, err)
	defer d.Close()
	return Save(t.Context(), d, s, limit)
}

// must fails the test if one of the steps that make a tree failed.
func must(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// describe describes everything in a tree that a restore must keep.
func describe(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	first := make(map[uint64]string)
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		name, _ := filepath.Rel(dir, path)
		d := fmt.Sprintf("%o %d:%d %d.%09d", st.Mode, st.Uid, st.Gid, st.Mtim.Sec, st.Mtim.Nsec)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			d += fmt.Sprintf(" %d %x", st.Size, sha256.Sum256(data))
			if st.Nlink > 1 {
				if first[st.Ino] == "" {
					first[st.Ino] = name
				}
				d += " is " + first[st.Ino]
			}
		case unix.S_IFLNK:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			d += " to " + to
		}
		value := make([]byte, 1024)
		if n, err := unix.Lgetxattr(path, "user.colour=%", value); err == nil {
			d += fmt.Sprintf(" coloured %q", value[:n])
		}
		all[name] = d
		return nil
	})
	must(t, err)
	return all
}

// tree makes a tree with every kind of entry that a stream keeps.
func tree(t testing.TB) string {
	t.Helper()
	privileged.Need(t, "files of other users")
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	must(t,
		os.Mkdir(at("sub"), 0o755), os.Mkdir(at("sub/empty"), 0o700), os.Mkdir(at("a"), 0o711),
		os.WriteFile(at("plain"), []byte("text"), 0o640), os.WriteFile(at("none"), nil, 0),
		os.WriteFile(at("sub/large"), bytes.Repeat([]byte("0123456789"), 20_000), 0o600),
		os.WriteFile(at("with\nnewline and \xff"), []byte("x"), 0o600),
		os.WriteFile(at("a/setuid"), []byte("program"), 0o755), os.Chown(at("a/setuid"), 12, 34),
		unix.Chmod(at("a/setuid"), 0o6755),
		os.Link(at("plain"), at("sub/hard")), os.Symlink("../plain", at("sub/soft")), os.Symlink("/etc/passwd", at("away")),
		unix.Mkfifo(at("sub/pipe"), 0o620), os.Lchown(at("sub/soft"), 7, 8),
		unix.Setxattr(at("plain"), "user.colour=%", []byte("re\x00d"), 0), unix.Setxattr(at("sub"), "user.colour=%", nil, 0),
		holed(at("holes")), os.Truncate(at("none"), 5<<20),
		unix.Mknod(at("socket"), unix.S_IFSOCK|0o600, 0), unix.Chmod(dir, 0o1777), os.Chown(dir, 5, 6),
	)
	for i, name := range []string{"sub/soft", "sub/pipe", "plain", "a/setuid", "sub", "."} {
		ts := unix.Timespec{Sec: 1_600_000_000 - int64(i)*1_700_000_000, Nsec: 123456789 + int64(i)}
		must(t, unix.UtimesNanoAt(unix.AT_FDCWD, at(name), []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW))
	}
	return dir
}

// holed makes a file of 64 MiB with data in two places.
func holed(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err1 := f.WriteAt([]byte("here"), 1<<20)
	_, err2 := f.WriteAt([]byte("there"), 40<<20)
	return errors.Join(err1, err2, f.Truncate(64<<20), f.Close())
}

// TestRoundTrip saves a tree, and fills another directory with it twice.
func TestRoundTrip(t *testing.T) {
	dir := tree(t)
	want := describe(t, dir)
	delete(want, "socket")
	s := save(t, dir)
	if s.Len() > 4<<20 {
		t.Errorf("%d bytes for a tree that has a hundredth of them in data", s.Len())
	}
	if len(s.cuts) < 2 {
		t.Errorf("the large file is not cut off: %v", s.cuts)
	}
	to := t.TempDir()
	must(t, Fill(t.Context(), to, bytes.NewReader(s.Bytes())))
	if got := describe(t, to); !maps.Equal(got, want) {
		for _, name := range slices.Sorted(maps.Keys(want)) {
			if got[name] != want[name] {
				t.Errorf("%q is %.200s, was %.200s", name, got[name], want[name])
			}
		}
		t.Errorf("%d entries, want %d", len(got), len(want))
	}
	var st unix.Stat_t
	must(t, unix.Stat(filepath.Join(to, "holes"), &st))
	if st.Blocks*512 > 8<<20 {
		t.Errorf("the file with holes takes %d bytes", st.Blocks*512)
	}
	if again := save(t, to); !bytes.Equal(again.Bytes(), s.Bytes()) {
		t.Error("the stream of the copy differs")
	}
}

func TestSaveLimit(t *testing.T) {
	dir := tree(t)
	if err := saveTo(t, dir, new(stream), 100_000); !errors.Is(err, ErrLimit) {
		t.Errorf("100,000 bytes: %v", err)
	}
	deep := strings.Repeat("d/", maxDepth+1)
	must(t, os.MkdirAll(filepath.Join(dir, deep), 0o700))
	if err := saveTo(t, dir, new(stream), plenty); !errors.Is(err, ErrLimit) {
		t.Errorf("%d directories in each other: %v", maxDepth+1, err)
	}
}

// TestFillFails breaks a stream off at places of every kind. The directory is then empty, and has its old metadata.
func TestFillFails(t *testing.T) {
	s := save(t, tree(t))
	to := filepath.Join(t.TempDir(), "v")
	must(t, os.Mkdir(to, 0o750), os.Chown(to, 1, 2))
	for n := 0; n < s.Len()-1024; n += 1 + s.Len()/23 {
		if err := Fill(t.Context(), to, bytes.NewReader(s.Bytes()[:n])); err == nil {
			t.Fatalf("%d bytes of %d are taken", n, s.Len())
		}
		if got := describe(t, to); len(got) != 1 || !strings.HasPrefix(got["."], "40750 1:2 ") {
			t.Fatalf("after %d bytes there is %v", n, got)
		}
	}
	must(t, Fill(t.Context(), to, bytes.NewReader(s.Bytes())))
	want := describe(t, to)
	must(t, os.WriteFile(filepath.Join(to, "later"), nil, 0o600), Fill(t.Context(), to, bytes.NewReader(s.Bytes())))
	if got := describe(t, to); !maps.Equal(got, want) {
		t.Errorf("a second time there is %v", got)
	}
	other := t.TempDir()
	must(t, os.WriteFile(filepath.Join(other, "mine"), nil, 0o600))
	if err := Fill(t.Context(), other, bytes.NewReader(s.Bytes())); !errors.Is(err, ErrOccupied) {
		t.Errorf("where there is something: %v", err)
	}
	if got := describe(t, other); len(got) != 2 {
		t.Errorf("what was there is gone: %v", got)
	}
}

// TestMark cuts the filling of a volume short. The next cleaning finds this and empties the volume, unless the pod
// may have written to it since.
func TestMark(t *testing.T) {
	privileged.Need(t, "files of other users")
	dir := filepath.Join(t.TempDir(), "v")
	must(t, os.Mkdir(dir, 0o700), unix.Chmod(dir, 0o2770), os.Chown(dir, 3, 4))
	some := func() {
		must(t, os.Mkdir(filepath.Join(dir, "d"), 0), os.WriteFile(filepath.Join(dir, "d", "x"), nil, 0),
			os.Chmod(dir, 0o711))
	}
	some()
	must(t, clean(dir))
	if got := describe(t, dir); len(got) != 3 {
		t.Fatalf("what nobody has filled is emptied: %v", got)
	}
	must(t, with(dir, removeAll), unix.Chmod(dir, 0o2770))

	must(t, with(dir, func(d *os.File) error { _, err := prepare(d); return err }))
	some()
	must(t, clean(dir))
	if got := describe(t, dir); len(got) != 1 || !strings.HasPrefix(got["."], "42770 3:4 ") {
		t.Fatalf("half filled, it is %v", got)
	}

	must(t, with(dir, func(d *os.File) error { _, err := prepare(d); return err }))
	some()
	must(t, with(dir, settle), with(dir, settle), clean(dir))
	if got := describe(t, dir); len(got) != 3 {
		t.Fatalf("what may be the pod's own is emptied: %v", got)
	}
	must(t, with(dir, empty))
	if got := describe(t, dir); len(got) != 1 || !strings.HasPrefix(got["."], "42770 3:4 ") {
		t.Fatalf("emptied, it is %v", got)
	}
	some()
	must(t, with(dir, empty))
	if got := describe(t, dir); len(got) != 3 {
		t.Fatalf("what nobody has filled is emptied: %v", got)
	}
}

// archive makes a stream of the volume's directory and other entries.
func archive(t testing.TB, headers ...*tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range append([]*tar.Header{{Name: "./", Typeflag: tar.TypeDir, Mode: 0o755}}, headers...) {
		h.Format, h.ModTime = tar.FormatPAX, time.Unix(1, 0)
		must(t, w.WriteHeader(h))
		if h.Size > 0 {
			_, err := w.Write(make([]byte, h.Size))
			must(t, err)
		}
	}
	must(t, w.Close())
	return b.Bytes()
}

// hostile are entries that Fill must refuse.
var hostile = map[string][]*tar.Header{
	"up":                {{Name: "../x", Typeflag: tar.TypeReg}},
	"absolute":          {{Name: "/x", Typeflag: tar.TypeReg}},
	"around":            {{Name: "a/../../x", Typeflag: tar.TypeReg}},
	"without directory": {{Name: "a/x", Typeflag: tar.TypeReg}},
	"itself":            {{Name: "./", Typeflag: tar.TypeDir}},
	"twice":             {{Name: "x", Typeflag: tar.TypeReg}, {Name: "x", Typeflag: tar.TypeReg}},
	"through a link":    {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."}, {Name: "l/x", Typeflag: tar.TypeReg}},
	"over a link":       {{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "../x"}, {Name: "l", Typeflag: tar.TypeReg}},
	"directory at link": {
		{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."},
		{Name: "l/", Typeflag: tar.TypeDir},
		{Name: "l/x", Typeflag: tar.TypeReg},
	},
	"back in": {
		{Name: "d/", Typeflag: tar.TypeDir},
		{Name: "e", Typeflag: tar.TypeReg},
		{Name: "d/x", Typeflag: tar.TypeReg},
	},
	"hard link up": {{Name: "h", Typeflag: tar.TypeLink, Linkname: "../outside"}},
	"hard link through": {
		{Name: "l", Typeflag: tar.TypeSymlink, Linkname: ".."},
		{Name: "h", Typeflag: tar.TypeLink, Linkname: "l/outside"},
	},
	"hard link to none": {{Name: "h", Typeflag: tar.TypeLink, Linkname: "x"}},
	"device":            {{Name: "c", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}},
	"block device":      {{Name: "b", Typeflag: tar.TypeBlock, Devmajor: 8}},
	"attribute": {{
		Name: "x", Typeflag: tar.TypeReg,
		PAXRecords: map[string]string{attributeRecord + "trusted.x": "eA=="},
	}},
	"capability": {{
		Name: "x", Typeflag: tar.TypeReg,
		PAXRecords: map[string]string{attributeRecord + "security.capability": "eA=="},
	}},
	"holes back": {{
		Name: "x", Typeflag: tar.TypeReg, Size: 2,
		PAXRecords: map[string]string{holesRecord: "9 5+1 4+1"},
	}},
	"holes past": {{
		Name: "x", Typeflag: tar.TypeReg, Size: 5,
		PAXRecords: map[string]string{holesRecord: "9 5+5"},
	}},
	"holes less": {{
		Name: "x", Typeflag: tar.TypeReg, Size: 5,
		PAXRecords: map[string]string{holesRecord: "9 1+1"},
	}},
	"holes negative": {{
		Name: "x", Typeflag: tar.TypeReg, Size: 1,
		PAXRecords: map[string]string{holesRecord: "9 -1+1"},
	}},
}

func TestFillHostile(t *testing.T) {
	for name, headers := range hostile {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			to := filepath.Join(base, "v")
			must(t, os.Mkdir(to, 0o700), os.WriteFile(filepath.Join(base, "outside"), []byte("mine"), 0o600))
			before := describe(t, base)
			open := descriptors(t)
			if err := Fill(t.Context(), to, bytes.NewReader(archive(t, headers...))); err == nil {
				t.Error("it is taken")
			}
			if now := descriptors(t); now > open {
				t.Errorf("%d files are left open", now-open)
			}
			untouched(t, base, before)
		})
	}
}

// untouched fails the test if anything except the volume's own directory has changed. Entries below it may have come
// and gone.
func untouched(t testing.TB, base string, before map[string]string) {
	t.Helper()
	after := describe(t, base)
	for _, m := range []map[string]string{before, after} {
		maps.DeleteFunc(m, func(name, _ string) bool { return name == "v" })
	}
	if !maps.Equal(before, after) {
		t.Errorf("there is %v, there was %v", after, before)
	}
}

// FuzzFill fills a volume from arbitrary bytes. Nothing may appear beside the volume, and after an error nothing may
// be in it.
func FuzzFill(f *testing.F) {
	for _, headers := range hostile {
		f.Add(archive(f, headers...))
	}
	f.Add(archive(f, &tar.Header{Name: "d/", Typeflag: tar.TypeDir, Mode: 0o1777},
		&tar.Header{Name: "d/x", Typeflag: tar.TypeReg, Size: 3},
		&tar.Header{Name: "h", Typeflag: tar.TypeLink, Linkname: "d/x"}, &tar.Header{Name: "p", Typeflag: tar.TypeFifo}))
	f.Fuzz(func(t *testing.T, b []byte) {
		base := t.TempDir()
		to := filepath.Join(base, "v")
		must(t, os.Mkdir(to, 0o700), os.WriteFile(filepath.Join(base, "outside"), []byte("mine"), 0o600))
		before := describe(t, filepath.Join(base, "outside"))
		err := Fill(t.Context(), to, bytes.NewReader(b))
		names, dirErr := os.ReadDir(base)
		must(t, dirErr)
		if len(names) != 2 || !maps.Equal(describe(t, filepath.Join(base, "outside")), before) {
			t.Fatal("something beside the volume was touched")
		}
		if in, dirErr := os.ReadDir(to); dirErr != nil || err != nil && len(in) > 0 {
			t.Fatalf("after %v the volume has %v, %v", err, in, dirErr)
		}
		if err == nil { // what was accepted can be saved
			must(t, saveTo(t, to, new(stream), plenty), os.RemoveAll(to))
		}
	})
}

// FuzzExtents parses arbitrary strings. What is accepted lies in the file, in order, and stays the same when it is
// encoded and parsed again.
func FuzzExtents(f *testing.F) {
	for _, s := range []string{
		"0", "9 0+9", "9 1+1 3+2", "9 1+1 2+2", "x", "9 -1+1",
		"9223372036854775807 9223372036854775806+1",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		x, size, err := parseExtents(s)
		if err != nil {
			return
		}
		var end int64
		for _, e := range x {
			if e.off < end || e.n <= 0 || e.off+e.n > size {
				t.Fatalf("%q has %v", s, x)
			}
			end = e.off + e.n
		}
		if again, n, err := parseExtents(x.encode(size)); err != nil || n != size || !slices.Equal(again, x) {
			t.Fatalf("%q is %v, then %v, %v", s, x, again, err)
		}
	})
}

// TestOpen opens a directory below another root. Symbolic links on the way lead to places below that root.
func TestOpen(t *testing.T) {
	root := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(root, "disk/v"), 0o700), os.Symlink("/disk", filepath.Join(root, "var")),
		os.Symlink("/disk/v", filepath.Join(root, "disk/link")), os.WriteFile(filepath.Join(root, "disk/v/here"), nil, 0o600))
	d, err := Open(root, "/var/v")
	must(t, err)
	defer d.Close()
	s := new(stream)
	must(t, Save(t.Context(), d, s, plenty))
	if !bytes.Contains(s.Bytes(), []byte("here")) {
		t.Error("it is another directory")
	}
	if _, err := Open(root, "/var/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that is not there: %v", err)
	}
	if _, err := Open(root, "/var/link"); err == nil {
		t.Error("a link is taken for a volume")
	}
}

func TestPart(t *testing.T) {
	if name, ok, err := OfPart(Part("a-b")); name != "a-b" || !ok || err != nil {
		t.Error(name, ok, err)
	}
	if _, ok, err := OfPart("pages.img"); ok || err != nil {
		t.Error(ok, err)
	}
	for _, bad := range []string{"volume-../x.tar", "volume-.tar", "volume-a"} {
		if _, _, err := OfPart(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// descriptors returns how many files the process has open.
func descriptors(t testing.TB) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(all)
}
