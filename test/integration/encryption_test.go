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

// TestEncrypted keeps a snapshot under a key: nothing of the pod is readable on the disk, it is
// restored with the key, and without it or with another one nothing is read.
func TestEncrypted(t *testing.T) {
	const secret = "correct-horse-battery-staple"
	keys := t.TempDir()
	newKey := func() {
		k := make([]byte, 32)
		rand.Read(k)
		if err := os.WriteFile(filepath.Join(keys, "default"), []byte(hex.EncodeToString(k)+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	newKey()
	right, err := os.ReadFile(filepath.Join(keys, "default"))
	if err != nil {
		t.Fatal(err)
	}
	n := start(t, "--encryption-keys="+keys, "--codec=none")
	if _, err := n.bed.RunPod(n.ctx, bed.PodSpec{Name: "origin", Containers: []bed.Container{{
		Name: "app", Image: images.Workload, Command: []string{"/bin/workload", "serve", "--mib=8"},
		Env: map[string]string{"WORKLOAD_SECRET": secret},
	}}}); err != nil {
		t.Fatal(err)
	}
	var st state
	n.eventually("workload answers", func() error { return n.get(n.lookup("origin"), "/state", &st) })
	n.checkpoint("origin", "--name=locked")
	n.nowhere(secret)
	n.checkWhole(n.restore("locked")[0], st.Boot, 8)

	newKey()
	if _, err := n.tryRestore("locked"); err == nil || !strings.Contains(err.Error(), "default/locked") || !strings.Contains(err.Error(), "key") {
		t.Errorf("with another key: %v", err)
	}
	if err := os.Remove(filepath.Join(keys, "default")); err != nil {
		t.Fatal(err)
	}
	if _, err := n.tryRestore("locked"); err == nil || !strings.Contains(err.Error(), "key") {
		t.Errorf("without a key: %v", err)
	}
	if err := os.WriteFile(filepath.Join(keys, "default"), right, 0o600); err != nil {
		t.Fatal(err)
	}
	n.checkWhole(n.restore("locked")[0], st.Boot, 8)
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
