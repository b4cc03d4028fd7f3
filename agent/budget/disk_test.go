package budget

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"diapause.dev/agent/errkind"
)

// diskOf returns the budget for a disk with so many MiB, of which so many are free.
func diskOf(percent int, size, free uint64) *Disk {
	d := NewDisk("/spool", percent)
	d.statfs = func(_ string, to *unix.Statfs_t) error {
		const reserved = 1000
		*to = unix.Statfs_t{
			Bsize: 4096, Blocks: (size + reserved) << 8, Bfree: (free + reserved) << 8, Bavail: free << 8,
		}
		return nil
	}
	return d
}

// TestHostilePodFillsDisk: what checkpoints under way may write does not reach below the floor. A refusal has all
// figures and the argument.
func TestHostilePodFillsDisk(t *testing.T) {
	d := diskOf(10, 1000, 500)
	first, err := d.Promise(300 << 20)
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.Promise(101 << 20)
	for _, want := range []string{"101 MiB", "/spool", "500 MiB", "300 MiB", "100 MiB", "--disk-floor=10"} {
		if !errors.Is(err, errkind.ErrBudget) || Refused(err) != "disk" || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	second, err := d.Promise(100 << 20)
	if err != nil {
		t.Fatal(err)
	}
	first()
	first()
	if third, err := d.Promise(300 << 20); err != nil {
		t.Error(err)
	} else {
		third()
	}
	second()
	if d.promised != 0 || d.promises != 0 {
		t.Errorf("%d bytes stay promised to %d", d.promised, d.promises)
	}
}

// TestDiskBelowFloor: nothing begins while less is free than the floor, unless there is none.
func TestDiskBelowFloor(t *testing.T) {
	if _, err := diskOf(10, 1000, 99).Promise(0); !errors.Is(err, errkind.ErrBudget) {
		t.Errorf("%v", err)
	}
	if _, err := diskOf(0, 1000, 99).Promise(1 << 40); err != nil {
		t.Error(err)
	}
	gone := NewDisk("/does/not/exist", 1)
	if _, err := gone.Promise(1); err == nil || errors.Is(err, errkind.ErrBudget) {
		t.Errorf("%v", err)
	}
}
