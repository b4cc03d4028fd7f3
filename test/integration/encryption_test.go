package integration

import (
	"bytes"
	"crypto/rand"
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"diapause.dev/test/bed"
	"diapause.dev/test/images"
)

// TestEncrypted keeps a snapshot under a key: nothing of the pod is readable on the disk, also of what
// did not fit into the arena; it is restored with the key, and without it or with another one nothing is
// read; the key is changed; a snapshot from before encryption is restored, too.
func TestEncrypted(t *testing.T) {
	const secret = "correct-horse-battery-staple"
	keys := keyFile(filepath.Join(t.TempDir(), "default"))
	right, other := newKey(), newKey()
	keys.write(t, right)
	n := start(t, "--encryption-keys="+filepath.Dir(string(keys)), "--codec=none", "--arena=4194304")
	p, err := n.bed.RunPod(n.ctx, bed.PodSpec{Name: "origin", Containers: []bed.Container{{
		Name: "app", Image: images.Workload, Command: []string{"/bin/workload", "serve", "--mib=8"},
		Env: map[string]string{"WORKLOAD_SECRET": secret},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	st := n.serving(p)
	n.checkpoint("origin", "--name=locked")
	n.nowhere(secret)
	n.checkWhole(n.restore("locked")[0], st.Boot, 8)

	keys.write(t, other)
	if _, err := n.tryRestore("locked"); err == nil || !strings.Contains(err.Error(), "default/locked") ||
		!strings.Contains(err.Error(), "key") {
		t.Errorf("with another key: %v", err)
	}
	if err := os.Remove(string(keys)); err != nil {
		t.Fatal(err)
	}
	if _, err := n.tryRestore("locked"); err == nil || !strings.Contains(err.Error(), "key") {
		t.Errorf("without a key: %v", err)
	}
	keys.write(t, right)
	n.checkWhole(n.restore("locked")[0], st.Boot, 8)
	n.rotated(keys, right, other)
	n.checkWhole(n.restore("locked")[0], st.Boot, 8)
	n.turnedOn(keys, other, st.Boot)
}

// turnedOn makes a snapshot that is not encrypted, and turns encryption on: the snapshot is restored until the file of
// keys forbids that.
func (n *node) turnedOn(keys keyFile, key, boot string) {
	n.Helper()
	keys.write(n.T, "none", key)
	n.checkpoint("origin", "--name=open")
	keys.write(n.T, key)
	n.checkWhole(n.restore("open")[0], boot, 8)
	keys.write(n.T, key, "encrypted-only")
	if _, err := n.tryRestore("open"); err == nil || !strings.Contains(err.Error(), "is not encrypted") {
		n.Errorf("with encrypted-only: %v", err)
	}
}

// keyFile is the path of a file of keys.
type keyFile string

func (f keyFile) write(t *testing.T, keys ...string) {
	t.Helper()
	if err := os.WriteFile(string(f), []byte(strings.Join(keys, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
}

func newKey() string {
	k := make([]byte, 32)
	_, _ = rand.Read(k) // never fails
	return hex.EncodeToString(k)
}

// rotated changes the key as an operator would, and leaves the new one alone in the file.
func (n *node) rotated(keys keyFile, former, current string) {
	n.Helper()
	keys.write(n.T, current, former)
	for _, rewrapped := range []int{1, 0} {
		var got struct {
			Stores []struct{ Keys, Rewrapped int }
		}
		n.decode(n.mustCLI("key", "rotate", "--output", "json"), &got)
		if len(got.Stores) != 2 {
			n.Fatalf("%+v", got)
		}
		for _, s := range got.Stores {
			if s.Keys != 1 || s.Rewrapped != rewrapped {
				n.Errorf("%+v, want 1 key, %d rewrapped", s, rewrapped)
			}
		}
	}
	keys.write(n.T, current)
}

// nowhere fails if a word is in any file that the agent keeps.
func (n *node) nowhere(word string) {
	n.Helper()
	files := 0
	err := filepath.WalkDir("/var/lib/diapause", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(word)) {
			n.Errorf("%q is readable in %s", word, path)
		}
		return err
	})
	if err != nil || files < 4 {
		n.Errorf("%d files: %v", files, err)
	}
}
