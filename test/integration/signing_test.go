package integration

import (
	"os"
	"strings"
	"testing"

	"diapause.dev/storage"
	"diapause.dev/storage/signing/signingtest"
)

// TestHostileUnsigned: somebody who can write to the stores changes what a signed snapshot starts. It is not restored,
// and verify says that it is not signed. As it was, it is restored.
func TestHostileUnsigned(t *testing.T) {
	pair := signingtest.New(t)
	n := start(t, "--signing-key="+pair.PrivateFile, "--trusted-keys="+pair.PublicFile)
	p := n.workload("origin", "serve", "--mib=8")
	st := n.serving(p)
	n.checkpoint("origin", "--name=signed")
	if out := n.mustCLI("verify", "signed"); !strings.Contains(out, "signed by "+pair.Fingerprint) {
		t.Errorf("verify: %s", out)
	}
	files := n.glob("default/snapshots/signed/manifest")
	sound, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	m, err := storage.DecodeManifest(sound)
	if err != nil {
		t.Fatal(err)
	}
	m.Meta.Pod.Containers[0].Name = "theirs"
	forged, err := storage.EncodeManifest(m)
	if err != nil {
		t.Fatal(err)
	}
	undo := n.damage(files, func([]byte) []byte { return forged })
	_, err = n.tryRestore("signed")
	for _, want := range []string{"default/signed", "is not signed", "--trusted-keys"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	if out := n.mustCLI("verify", "signed"); !strings.Contains(out, "not signed, and not restored") {
		t.Errorf("verify: %s", out)
	}
	undo()
	n.checkWhole(n.restore("signed")[0], st.Boot, 8)
}
