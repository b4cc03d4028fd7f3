package integration

import (
	"fmt"
	"testing"

	"diapause.dev/test/workload/answers"
)

// TestPrecopy: a pod that writes to its memory all the time is saved with nearly all of it stored before the pause, once
// and again, and then stopped. Each snapshot has every page as it was in the pause, and little is copied in it.
func TestPrecopy(t *testing.T) {
	n := start(t, "--precopy-from=1", "--arena=33554432")
	p := n.workload("busy", "serve", "--mib=96")
	before := n.serving(p)
	n.post(p, "/dirty?mib_per_s=20")
	names := []string{"first", "second", "last"}
	for _, name := range names {
		args := []string{"busy", "--name=" + name}
		if name == "last" {
			args = append(args, "--stop")
		}
		s := n.checkpoint(args...)
		if s.Overflow > 0 {
			t.Errorf("%s: %d bytes went to a file in the pause", name, s.Overflow)
		}
		if name != "last" {
			n.alive(p, before)
		}
	}
	if out := n.mustCLI("verify", "--read-data"); out == "" {
		t.Error("verify says nothing")
	}
	for _, name := range names {
		b := n.restore(name, "--name=from-"+name)[0]
		if st := n.serving(b); st.Boot != before.Boot {
			t.Errorf("%s is at %+v, the origin was at %+v", name, st, before)
		}
		n.verify(b)
		n.eventually("it still writes", func() error {
			var v answers.Memory
			if err := n.get(b, "/verify", &v); err != nil || !v.OK {
				return fmt.Errorf("%+v: %w", v, err)
			}
			return nil
		})
		if err := n.bed.RemovePod(n.ctx, b.ID); err != nil {
			t.Error(err)
		}
	}
}
