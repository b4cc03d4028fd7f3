package limits

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"diapause.dev/runsc/cgroup"
	"github.com/containerd/errdefs"
)

// TestHostileSavesAtOnce has several sandboxes ask for the same memory: one save gets it, and the next one gets it
// after that. A grant does not count once its shim is gone.
func TestHostileSavesAtOnce(t *testing.T) {
	g := grants{filepath.Join(t.TempDir(), "room")}
	level := cgroup.Level{Dir: "/pods", Limit: 400 * mib}
	room := func(others []grant) error { return fits(250*mib, []cgroup.Level{level}, others) }
	take := func(id string) (func(), error) {
		return g.take(t.Context(), id, grant{Bytes: 250 * mib, Cgroups: []string{level.Dir}}, room)
	}
	give, err := take("first")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := take("second"); !errdefs.IsResourceExhausted(err) {
		t.Errorf("second save: %v, want it refused", err)
	}
	if err := g.look(t.Context(), "second", room); !errdefs.IsResourceExhausted(err) {
		t.Errorf("second save is looked at: %v, want it refused", err)
	}
	if _, err := take("first"); err == nil {
		t.Error("a sandbox is granted room twice")
	}
	elsewhere := func(others []grant) error {
		return fits(250*mib, []cgroup.Level{{Dir: "/x", Limit: 400 * mib}}, others)
	}
	if err := g.look(t.Context(), "other", elsewhere); err != nil {
		t.Errorf("save in another cgroup: %v", err)
	}
	give()
	if give, err = take("second"); err != nil {
		t.Fatal(err)
	}
	give()
	gone := filepath.Join(g.dir, "gone")
	if err := os.WriteFile(gone, []byte(`{"bytes":1073741824,"cgroups":["/pods"]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if give, err = take("first"); err != nil {
		t.Fatal(err)
	}
	defer give()
	if _, err := os.Stat(gone); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("grant of a shim that is gone: %v", err)
	}
}
