package volume

import (
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"diapause.dev/runsc/kubelet"
	"diapause.dev/test/privileged"
)

const payload = "..2026_11_27_07_25_44.3932503335"

// held opens what is in a directory, and removes it then.
func held(t *testing.T, dir string, names ...string) map[string]int {
	t.Helper()
	pieces := make(map[string]int)
	for _, name := range names {
		fd, err := unix.Open(filepath.Join(dir, name), unix.O_PATH|unix.O_CLOEXEC, 0)
		must(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		pieces[name] = fd
	}
	must(t, os.RemoveAll(dir))
	return pieces
}

// modes describes the files and directories of a tree without their times.
func modes(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := describe(t, dir)
	for name, d := range all {
		fields := strings.SplitN(d, " ", 4)
		all[name] = strings.Join(slices.Delete(fields, 2, 3), " ")
	}
	return all
}

// TestPieces: of a directory that is gone, those files come back that are held, as they were, and nothing else.
func TestPieces(t *testing.T) {
	privileged.Need(t, "owners of files")
	base := t.TempDir()
	old, dir := filepath.Join(base, "old"), filepath.Join(base, "volume")
	must(t, os.MkdirAll(old+"/a/b", 0o750), os.MkdirAll(old+"/c", 0o700), os.Mkdir(dir, 0o755),
		os.WriteFile(old+"/a.sh", []byte("#!/bin/sh\n"), 0o744), os.WriteFile(old+"/a/b/key", []byte("key"), 0o400),
		os.WriteFile(old+"/other", nil, 0o600), os.Chown(old+"/a/b/key", 7, 8), os.Chmod(old, 0o755),
		os.Chmod(old+"/a", 0o755))
	want := modes(t, old)
	delete(want, "other")
	delete(want, "c")
	pieces := held(t, old, ".", "a", "a.sh", "a/b", "a/b/key")
	s := new(stream)
	must(t, SavePieces(t.Context(), pieces, s, plenty))
	must(t, os.Mkdir(filepath.Join(dir, payload), 0o700),
		os.WriteFile(filepath.Join(dir, payload, "half"), nil, 0o600)) // as after a loss of power
	must(t, Add(t.Context(), dir, payload, bytes.NewReader(s.Bytes())))
	if got := modes(t, filepath.Join(dir, payload)); !maps.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if err := SavePieces(t.Context(), pieces, new(stream), 100); !errors.Is(err, ErrLimit) {
		t.Errorf("more than the limit: %v", err)
	}
}

// TestPiecesAlone: a file comes back without its directory being held.
func TestPiecesAlone(t *testing.T) {
	privileged.Need(t, "owners of files") // the directory is root's
	dir := t.TempDir()
	old := filepath.Join(dir, "old")
	must(t, os.MkdirAll(old+"/a", 0o755), os.WriteFile(old+"/a/b", []byte("b"), 0o600))
	s := new(stream)
	must(t, SavePieces(t.Context(), held(t, old, "a/b"), s, plenty))
	must(t, Add(t.Context(), dir, payload, bytes.NewReader(s.Bytes())))
	if b, err := os.ReadFile(filepath.Join(dir, payload, "a", "b")); err != nil || string(b) != "b" {
		t.Errorf("%q, %v", b, err)
	}
}

// TestHostileAdd: a stream that is cut or leads elsewhere leaves the volume as it was, and what was there before stays.
func TestHostileAdd(t *testing.T) {
	dir := t.TempDir()
	old := filepath.Join(dir, "old")
	must(t, os.Mkdir(old, 0o755), os.WriteFile(old+"/b", []byte("b"), 0o600))
	s := new(stream)
	must(t, SavePieces(t.Context(), held(t, old, "b"), s, plenty))
	must(t, os.MkdirAll(filepath.Join(dir, payload), 0o755))
	was := modes(t, dir)
	for name, cut := range map[string][]byte{
		"cut": s.Bytes()[:s.Len()-512], "empty": nil,
		"elsewhere": bytes.ReplaceAll(s.Bytes(), []byte("b\x00\x00"), []byte("../")),
	} {
		if err := Add(t.Context(), dir, payload, bytes.NewReader(cut)); err == nil {
			t.Errorf("%s: it was put in place", name)
		}
		if _, err := os.Lstat(filepath.Join(dir, unfinished+payload)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: something is left: %v", name, err)
		}
		if now := modes(t, dir); !maps.Equal(now, was) {
			t.Errorf("%s: %q, was %q", name, now, was)
		}
	}
}

func TestPayloadPart(t *testing.T) {
	p := kubelet.Payload{Volume: "kube-api-access-x", Dir: payload}
	if got, ok, err := OfPayloadPart(PayloadPart(p)); got != p || !ok || err != nil {
		t.Errorf("%+v, %v, %v", got, ok, err)
	}
	for part, bad := range map[string]bool{
		"volume-a.tar": false, "pages.img": false, "payload-a.tar": true, "payload-..": true,
		"payload-a..2026_11_27_07_25_44.1": true, "payload-a/..2026_11_27_07_25_44.1.tar": true,
	} {
		if _, ok, err := OfPayloadPart(part); ok || (err != nil) != bad {
			t.Errorf("%s: %v, %v", part, ok, err)
		}
	}
	if _, ok, err := OfPart(PayloadPart(p)); ok || err != nil {
		t.Errorf("it is taken for a volume: %v", err)
	}
}
