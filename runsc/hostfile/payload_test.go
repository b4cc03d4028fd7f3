package hostfile

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	before = "..2026_11_27_07_25_44.3932503335"
	now    = "..2026_11_28_07_25_44.1"
)

// TestHeld: what a sandbox holds of a volume that the kubelet writes is found: files and directories, also those that
// the kubelet has removed since. What it holds elsewhere is not, whatever its name is.
func TestHeld(t *testing.T) {
	host, at := bind(t, 0)
	open(t, filepath.Join(host, before, "run.sh"), os.O_RDONLY)
	open(t, filepath.Join(host, now, "sub", "ca.crt"), os.O_RDONLY)
	if err := unix.Mount("", at, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	p, err := FindPayloads(self(time.Time{}), []Mount{{Host: host, Container: "app", Path: "/etc/app"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	for _, name := range []string{before + "/run.sh", before, now + "/sub/ca.crt", now + "/sub", "."} {
		f, err := os.Open(filepath.Join(at, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
	}
	open(t, filepath.Join(t.TempDir(), before, "elsewhere"), os.O_RDONLY)
	if err := os.RemoveAll(filepath.Join(host, before)); err != nil {
		t.Fatal(err)
	}
	want := filepath.Base(host) + "/" + before + ": . run.sh; " + filepath.Base(host) + "/" + now + ": sub sub/ca.crt"
	if got := heldBy(t, p); got != want {
		t.Errorf("held: %s; want %s", got, want)
	}
}

func heldBy(t *testing.T, p *Payloads) string {
	t.Helper()
	held, err := p.Held()
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, one := range held {
		all = append(all, one.String()+": "+strings.Join(slices.Sorted(maps.Keys(one.Pieces)), " "))
		one.Close()
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// TestHostileHeld: a sandbox that holds more than any pod needs fails the checkpoint, and no descriptor stays open.
func TestHostileHeld(t *testing.T) {
	host, at := bind(t, 0)
	for i := range maxPayloads + 1 {
		dir := filepath.Join(at, "..2026_11_27_07_25_44."+string(rune('1'+i/10))+string(rune('0'+i%10)))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
	}
	p, err := FindPayloads(self(time.Time{}), []Mount{{Host: host, Container: "app", Path: "/etc/app"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	open, err := descriptors("/proc/self")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Held(); err == nil || !strings.Contains(err.Error(), filepath.Base(host)) {
		t.Errorf("it is taken: %v", err)
	}
	if left, err := descriptors("/proc/self"); err != nil || len(left) != len(open) {
		t.Errorf("%d descriptors are open, and were %d: %v", len(left), len(open), err)
	}
}
