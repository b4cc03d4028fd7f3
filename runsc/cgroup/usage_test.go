package cgroup

import (
	"os"
	"testing"
	"time"
)

// TestCPUOf reads the processor time of this test's own cgroup, which grows while it works.
func TestCPUOf(t *testing.T) {
	c, err := CPUOf(os.Getpid(), 1)
	if err != nil {
		t.Fatal(err)
	}
	before, err := c.Used()
	if err != nil {
		t.Fatal(err)
	}
	for after := before; after <= before; {
		if after, err = c.Used(); err != nil {
			t.Fatal(err)
		}
		if t.Context().Err() != nil {
			t.Fatalf("still %v", after)
		}
	}
	if before < 0 || before > 100*365*24*time.Hour {
		t.Errorf("%v", before)
	}
}

// TestUsed reads what the kernel writes. Anything else gives an error.
func TestUsed(t *testing.T) {
	path := t.TempDir() + "/cpu.stat"
	for _, text := range []string{"", "usage_usec many\n", "user_usec 3\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if d, err := (&CPU{file: path, line: "usage_usec ", unit: time.Microsecond}).Used(); err == nil {
			t.Errorf("%q: %v", text, d)
		}
	}
	if err := os.WriteFile(path, []byte("usage_usec 1500\nuser_usec 3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := (&CPU{file: path, line: "usage_usec ", unit: time.Microsecond}).Used()
	if d != 1500*time.Microsecond || err != nil {
		t.Errorf("%v, %v", d, err)
	}
}
