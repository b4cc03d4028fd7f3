package hostfile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"diapause.dev/api/snapshot"
	"diapause.dev/test/privileged"
)

// self is this process as a sandbox that began at a time.
func self(began time.Time) Sandbox {
	p := fmt.Sprintf("/proc/%d", os.Getpid())
	return Sandbox{Shim: p, Processes: []string{p}, Began: began}
}

// bind mounts a directory of the node as a container would have it, and returns both.
func bind(t *testing.T, flags uintptr) (host, at string) {
	t.Helper()
	privileged.Need(t, "mounts")
	host, at = t.TempDir(), t.TempDir()
	if err := unix.Mount(host, at, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if flags != 0 {
		if err := unix.Mount("", at, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	return host, at
}

// open writes a file, and opens it until the test ends. Its times are odd ones, of an hour ago.
func open(t *testing.T, name string, flags int) *os.File {
	t.Helper()
	old := time.Now().Add(-time.Hour).Truncate(time.Second).Add(123456789)
	if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte("some\n"), 0o600),
		os.Chtimes(name, old, old)); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(name, flags, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func find(t *testing.T, began time.Time, hosts ...string) *Files {
	t.Helper()
	var mounts []Mount
	for _, h := range hosts {
		mounts = append(mounts, Mount{Host: h, Container: "app", Path: "/data"})
	}
	f, err := Find(self(began), mounts, func(host string) bool { return !strings.HasSuffix(host, "unwanted") })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// names returns the paths of all files noted.
func names(volumes []snapshot.Volume) (all []string) {
	for _, v := range volumes {
		for _, f := range v.Files {
			all = append(all, f.Path)
		}
	}
	return all
}

// TestNoted: of the files that are open in a volume, those are noted that are open for writing or were modified since
// the sandbox began, as they are when they are noted. Others are not: read ones, those without a name, what is no file.
func TestNoted(t *testing.T) {
	host, at := bind(t, 0)
	began := time.Now().Add(-time.Minute)
	open(t, at+"/db/log file", os.O_WRONLY|os.O_APPEND)
	open(t, at+"/old", os.O_RDONLY)
	modified := open(t, at+"/modified", os.O_RDONLY)
	removed := open(t, at+"/removed", os.O_RDWR)
	moved := open(t, at+"/moved", os.O_RDWR)
	dir, err := os.Open(at + "/db")
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := errors.Join(os.Remove(removed.Name()), os.Rename(moved.Name(), at+"/elsewhere")); err != nil {
		t.Fatal(err)
	}
	f := find(t, began, host)
	if err := os.WriteFile(modified.Name(), []byte("longer by some\n"), 0); err != nil { // as the pause begins
		t.Fatal(err)
	}
	noted := f.Note(time.Minute)
	if got := strings.Join(names(noted), " "); got != "db/log file elsewhere modified" {
		t.Errorf("noted %q", got)
	}
	v := noted[0]
	if v.Unknown != "" || v.Host != host || v.Container != "app" || v.Path != "/data" || v.Files[2].Size != 15 {
		t.Errorf("noted %+v", v)
	}
	if left := f.Sync(time.Minute); len(left) > 0 {
		t.Errorf("not written: %q", left)
	}
	if err := Compare(t.Context(), "/", noted); err != nil {
		t.Error(err)
	}
}

// TestMovedMeanwhile: a database renames and removes files all the time. What is renamed between the search and the
// note is noted by its new name. What no longer has a name is not noted.
func TestMovedMeanwhile(t *testing.T) {
	host, at := bind(t, 0)
	began := time.Now().Add(-time.Minute)
	reused := open(t, at+"/wal/1", os.O_RDWR)
	removed := open(t, at+"/wal/2", os.O_RDWR)
	replaced := open(t, at+"/manifest", os.O_RDWR)
	away := open(t, at+"/away", os.O_RDWR)
	linked := open(t, at+"/linked", os.O_RDWR)
	open(t, at+"/new manifest", os.O_RDONLY)
	f := find(t, began, host)
	if err := errors.Join(os.Rename(reused.Name(), at+"/wal/3"), os.Remove(removed.Name()),
		os.Rename(at+"/new manifest", replaced.Name()), os.Rename(away.Name(), at+"/away (deleted)"),
		os.Link(linked.Name(), at+"/another link"), os.Remove(linked.Name())); err != nil {
		t.Fatal(err)
	}
	noted := f.Note(time.Minute)
	if got := strings.Join(names(noted), ", "); got != "away (deleted), wal/3" {
		t.Errorf("noted %q", got)
	}
	if err := Compare(t.Context(), "/", noted); err != nil {
		t.Error(err)
	}
}

// TestNotNoted: volumes that cannot be written, or are not wanted, are left out, and the root file system, too.
func TestNotNoted(t *testing.T) {
	began := time.Now().Add(-24 * time.Hour)
	readOnly, at := bind(t, unix.MS_RDONLY)
	open(t, readOnly+"/file", os.O_RDWR)
	f, err := os.Open(at + "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	open(t, t.TempDir()+"/file", os.O_RDWR)
	if noted := find(t, began, readOnly).Note(time.Minute); len(noted) != 0 {
		t.Errorf("noted %+v", noted)
	}
	host, _ := bind(t, 0)
	unwanted := host + "/unwanted"
	if err := os.Mkdir(unwanted, 0o700); err != nil {
		t.Fatal(err)
	}
	if noted := find(t, began, unwanted).Note(time.Minute); len(noted) != 0 {
		t.Errorf("noted %+v", noted)
	}
}

// TestUnknown: what a restore would not notice is said: a volume that no process shows, whole seconds, too many files.
func TestUnknown(t *testing.T) {
	unknown := func(began time.Time, host string) string {
		t.Helper()
		noted := find(t, began, host).Note(time.Minute)
		if len(noted) != 1 {
			t.Fatalf("noted %+v", noted)
		}
		return noted[0].Unknown
	}
	if got := unknown(time.Now(), t.TempDir()); !strings.Contains(got, "no process") {
		t.Errorf("a volume that no process shows: %q", got)
	}
	host, at := bind(t, 0)
	f := open(t, at+"/file", os.O_RDWR)
	whole := time.Now().Truncate(time.Second)
	if err := os.Chtimes(f.Name(), whole, whole); err != nil {
		t.Fatal(err)
	}
	if got := unknown(whole.Add(-time.Hour), host); !strings.Contains(got, "whole seconds") {
		t.Errorf("whole seconds: %q", got)
	}
	if got := unknown(whole.Add(time.Hour), host); got != "" {
		t.Errorf("a file that the sandbox did not modify: %q", got)
	}
	for i := range snapshot.MaxVolumeFiles {
		open(t, fmt.Sprint(at, "/", i), os.O_WRONLY)
	}
	if got := unknown(whole.Add(time.Hour), host); !strings.Contains(got, "more than 4096") {
		t.Errorf("too many: %q", got)
	}
}

// TestPart: a part of a volume that the kubelet has mounted for a container is noted below the volume.
func TestPart(t *testing.T) {
	node := []mount{
		{device: "1:1", root: "/", at: "/"},
		{device: "1:2", root: "/", at: "/k/plugins/global"},
		{device: "1:2", root: "/", at: "/k/pods/u/volumes/csi/pv/mount"},
		{device: "1:2", root: "/", at: "/k/pods/other/volumes/csi/pv/mount"},
		{device: "1:2", root: "/sub/dir", at: "/k/pods/u/volume-subpaths/pv/app/0"},
		{device: "1:1", root: "/srv/x/sub", at: "/k/pods/u/volume-subpaths/host/app/1"},
	}
	for host, want := range map[string]string{
		"/k/pods/u/volume-subpaths/pv/app/0":   "/k/pods/u/volumes/csi/pv/mount/sub/dir",
		"/k/pods/u/volume-subpaths/host/app/1": "/srv/x/sub",
		"/k/pods/u/volume-subpaths/none/app/2": "/k/pods/u/volume-subpaths/none/app/2",
		"/k/pods/u/volumes/csi/pv/mount":       "/k/pods/u/volumes/csi/pv/mount",
	} {
		if got := whole(node, host); got != want {
			t.Errorf("%s: %s, want %s", host, got, want)
		}
	}
}

// noted is a volume at a path with one file as it is there.
func noted(t *testing.T, host, name string) snapshot.Volume {
	t.Helper()
	fi, err := os.Stat(filepath.Join(host, name))
	if err != nil {
		t.Fatal(err)
	}
	return snapshot.Volume{Host: host, Container: "app", Path: "/data", Files: []snapshot.VolumeFile{
		{Path: name, Size: fi.Size(), Modified: fi.ModTime().UnixNano()},
	}}
}

// TestCompare: a file that is longer, newer, older, replaced by something else, or missing, has changed. One that was
// copied with its time has not.
func TestCompare(t *testing.T) {
	for what, change := range map[string]func(name string, was time.Time) error{
		"longer": func(name string, was time.Time) error {
			return errors.Join(os.WriteFile(name, []byte("longer than it was"), 0o600), os.Chtimes(name, was, was))
		},
		"newer":   func(name string, was time.Time) error { return os.Chtimes(name, was, was.Add(1)) },
		"older":   func(name string, was time.Time) error { return os.Chtimes(name, was, was.Add(-1)) },
		"missing": func(name string, _ time.Time) error { return os.Remove(name) },
		"a link": func(name string, _ time.Time) error {
			return errors.Join(os.Rename(name, name+"2"), os.Symlink(filepath.Base(name)+"2", name))
		},
		"": func(name string, was time.Time) error {
			return errors.Join(os.Remove(name), os.WriteFile(name, []byte("some\n"), 0o600), os.Chtimes(name, was, was))
		},
	} {
		host := t.TempDir()
		f := open(t, host+"/db/file", os.O_RDWR)
		v := noted(t, host, "db/file")
		if err := change(f.Name(), v.Files[0].Time()); err != nil {
			t.Fatal(err)
		}
		err := Compare(t.Context(), "/", []snapshot.Volume{v})
		if (what != "") != errors.Is(err, ErrChanged) {
			t.Errorf("%s: %v", what, err)
		}
		for _, word := range []string{"/data of container app", "db/file", v.Files[0].Time().Format(time.RFC3339Nano)} {
			if err != nil && !strings.Contains(err.Error(), word) {
				t.Errorf("%s: %q is not in %v", what, word, err)
			}
		}
	}
}

// TestNamesake: a claim's volume that has another name is found by its files.
func TestNamesake(t *testing.T) {
	pod := t.TempDir()
	open(t, pod+"/volumes/csi/pv-old/mount/file", os.O_RDWR)
	v := noted(t, pod+"/volumes/csi/pv-old/mount", "file")
	if err := os.Rename(pod+"/volumes/csi/pv-old", pod+"/volumes/csi/pv-new"); err != nil {
		t.Fatal(err)
	}
	if err := Compare(t.Context(), "/", []snapshot.Volume{v}); err != nil {
		t.Error(err)
	}
	if err := os.Truncate(pod+"/volumes/csi/pv-new/mount/file", 1); err != nil {
		t.Fatal(err)
	}
	if err := Compare(t.Context(), "/", []snapshot.Volume{v}); !errors.Is(err, ErrChanged) {
		t.Errorf("changed: %v", err)
	}
}

// TestHostileNotes: notes that no agent has written are refused, and none leads out of its volume.
func TestHostileNotes(t *testing.T) {
	outside := open(t, t.TempDir()+"/secret", os.O_RDWR).Name()
	host := t.TempDir()
	if err := errors.Join(os.Symlink(filepath.Dir(outside), host+"/dir"), os.Symlink(outside, host+"/file")); err != nil {
		t.Fatal(err)
	}
	secret := noted(t, filepath.Dir(outside), "secret").Files[0]
	at := func(host, name string) []snapshot.Volume {
		f := secret
		f.Path = name
		return []snapshot.Volume{{Host: host, Files: []snapshot.VolumeFile{f}}}
	}
	for what, volumes := range map[string][]snapshot.Volume{
		"dots":              at(host, "../secret"),
		"dots inside":       at(host, "dir/../file"),
		"absolute":          at(host, outside),
		"no path":           at(host, ""),
		"a link":            at(host, "file"),
		"a directory link":  at(host, "dir/secret"),
		"relative host":     at("etc", "passwd"),
		"dots in host":      at(host+"/..", "secret"),
		"negative size":     {{Host: host, Files: []snapshot.VolumeFile{{Path: "x", Size: -1}}}},
		"too many files":    {{Host: host, Files: make([]snapshot.VolumeFile, snapshot.MaxVolumeFiles+1)}},
		"too many volumes":  make([]snapshot.Volume, snapshot.MaxVolumes+1),
		"too long":          at(host, strings.Repeat("x/", snapshot.MaxVolumePaths)+"x"),
		"too long a reason": {{Host: host, Unknown: strings.Repeat("x", 4097)}},
	} {
		if err := Compare(context.Background(), "/", volumes); err == nil {
			t.Errorf("%s: accepted", what)
		}
	}
	if err := Compare(t.Context(), "/", at(filepath.Dir(outside), "secret")); err != nil {
		t.Errorf("the file itself: %v", err)
	}
	if err := Compare(t.Context(), outside, at("/", "secret")); err == nil || errors.Is(err, ErrChanged) {
		t.Errorf("a node that cannot be looked at: %v", err)
	}
}

// TestHostileMounts: lines of mountinfo with strange paths are read as the kernel means them.
func TestHostileMounts(t *testing.T) {
	for escaped, want := range map[string]string{
		`/a\040b`: "/a b", `/a\134040b`: `/a\040b`, `\`: `\`, `\9`: `\9`, `\777x`: `\777x`,
	} {
		if got := unescape(escaped); got != want {
			t.Errorf("%s: %q, want %q", escaped, got, want)
		}
	}
}
