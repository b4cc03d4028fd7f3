package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/test/bed"
	"diapause.dev/test/images"
	"diapause.dev/test/workload/answers"
)

const (
	spoolRoot = "/var/lib/diapause/spool"
	storeRoot = "/var/lib/diapause/store"
)

// fromSnapshot is a pod as a kubelet would make it to be restored.
func fromSnapshot(name, key string, args ...string) bed.PodSpec {
	return bed.PodSpec{
		Name: name,
		Annotations: map[string]string{
			"diapause.dev/restore-from":       key,
			"diapause.dev/on-restore-failure": "Fail",
		},
		Containers: []bed.Container{{
			Name: "app", Image: images.Workload,
			Command: append([]string{"/bin/workload"}, args...),
		}},
	}
}

// checkWhole fails unless the pod's memory is whole and its process is the one that booted as boot.
func (n *node) checkWhole(p *bed.Pod, boot string, mib int) {
	n.Helper()
	if st := n.serving(p); st.Boot != boot {
		n.Errorf("%s booted as %s, not %s: it was not restored", p.Name, st.Boot, boot)
	}
	var v answers.Memory
	if err := n.get(p, "/verify", &v); err != nil || !v.OK || v.Pages != mib<<8 {
		n.Errorf("memory of %s: %+v, %v", p.Name, v, err)
	}
}

// TestAgentKilledWhileLoading kills the agent at several instants of a restore. The sandbox lives
// on, and every byte arrives from the next agent.
func TestAgentKilledWhileLoading(t *testing.T) {
	const mib = 256
	n := start(t)
	p := n.workload("origin", "serve", fmt.Sprintf("--mib=%d", mib))
	st := n.serving(p)
	s := n.checkpoint("origin")
	interrupted := 0
	for i, after := range []time.Duration{0, 30, 60, 100, 150, 250} {
		spec := fromSnapshot(fmt.Sprintf("killed-%d", i), "default/"+s.Name, "serve", fmt.Sprintf("--mib=%d", mib))
		pod := n.interrupted(spec, after*time.Millisecond, func() {
			if len(n.restores()) > 0 {
				interrupted++
			}
		})
		n.checkWhole(pod, st.Boot, mib)
		if err := n.bed.RemovePod(n.ctx, pod.ID); err != nil {
			t.Error(err)
		}
	}
	t.Logf("%d restores were interrupted", interrupted)
	if interrupted == 0 {
		t.Error("no kill came before the sandbox had all its memory")
	}
}

// interrupted runs a pod that is to be restored, and kills the agent so long after the restore has
// begun. It calls killed while there is none, starts another, and returns the pod when that runs.
func (n *node) interrupted(spec bed.PodSpec, after time.Duration, killed func()) *bed.Pod {
	n.Helper()
	var pod *bed.Pod
	started := make(chan error, 1)
	go func() {
		var err error
		pod, err = n.bed.RunPod(n.ctx, spec)
		started <- err
	}()
	n.eventually("the restore begins", func() error {
		if len(n.restores()) == 0 {
			return os.ErrNotExist
		}
		return nil
	})
	time.Sleep(after)
	n.agent.Kill()
	killed()
	time.Sleep(300 * time.Millisecond)
	n.startAgent()
	if err := <-started; err != nil {
		n.Fatalf("killed after %v: %v", after, err)
	}
	return pod
}

// restores returns the agent's notes of restores: a whole pod's is there until all its memory is.
func (n *node) restores() []string {
	n.Helper()
	files, err := filepath.Glob("/run/diapause/requests/*/restore.json")
	if err != nil {
		n.Fatal(err)
	}
	return files
}

// TestTwoContainers restores a pod of two containers that share a process's view of the network. Both can be asked what
// they could be asked before.
func TestTwoContainers(t *testing.T) {
	n := start(t)
	p, err := n.bed.RunPod(n.ctx, bed.PodSpec{Name: "pair", Containers: []bed.Container{
		{Name: "app", Image: images.Workload, Command: []string{"/bin/workload", "serve", "--mib=8"}},
		{Name: "side", Command: []string{
			"/bin/sh", "-c",
			"i=0; while true; do i=$((i+1)); echo $i > /tmp/count; sleep 0.05; done",
		}, Env: map[string]string{"BESIDE": "1.2", "ALIKE": "abcd"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	st := n.serving(p)
	count := func(p *bed.Pod) (c int) {
		n.eventually("the side container counts", func() error {
			out, code, err := n.bed.Exec(n.ctx, p.Container("side"), "/bin/cat", "/tmp/count")
			if err != nil || code != 0 {
				return fmt.Errorf("exit code %d: %w", code, err)
			}
			_, err = fmt.Sscan(out, &c)
			return err
		})
		return c
	}
	before := count(p)
	s := n.checkpoint(p.ID)
	after := count(p)
	b := n.restore(s.Name, "--name=pair-again")[0]
	n.checkWhole(b, st.Boot, 8)
	if got := count(b); got < before {
		t.Errorf("the side container is at %d, was between %d and %d", got, before, after)
	}
	if got := n.sh(b, "side", "echo $BESIDE $ALIKE"); got != "1.2 abcd" {
		t.Errorf("the environment of an exec has %q", got)
	}
	n.measured(b)
}

// TestDamagedSnapshots damages a snapshot in many ways. A restore is refused before the sandbox
// starts or fails it cleanly, nothing hangs, and the next restore works.
func TestDamagedSnapshots(t *testing.T) {
	const mib = 16
	n := start(t)
	p := n.workload("origin", "serve", fmt.Sprintf("--mib=%d", mib))
	st := n.serving(p)
	s := n.checkpoint("origin", "--name=sound")
	key := "default/" + s.Name
	packs := n.glob("default/packs/*")
	manifests := n.glob("default/snapshots/sound/manifest")
	m := n.manifest(manifests[0])

	for _, d := range []struct {
		name   string
		files  []string
		damage func([]byte) []byte
		want   string
	}{
		{"manifest flipped at its start", manifests, flip(0.001), "manifest"},
		{"manifest flipped in the middle", manifests, flip(0.5), "manifest"},
		{"manifest truncated", manifests, cut(0.5), "manifest"},
		{"manifest empty", manifests, cut(0), "manifest"},
		{"pack missing", packs, nil, "packs/"},
		{"pack truncated", packs, cut(0.7), "packs/"},
		{"kernel state flipped", packs, flipFile(m, "checkpoint.img", 0), "packs/"},
		{"page flipped", packs, flipFile(m, "pages.img", 0.3), "packs/"},
		{"last page flipped", packs, flipFile(m, "pages.img", 1), "packs/"},
	} {
		t.Run(d.name, func(t *testing.T) {
			undo := n.damage(d.files, d.damage)
			pods, err := n.tryRestore(key, "--name=damaged")
			undo()
			if err == nil {
				t.Fatalf("restored as %v", pods)
			}
			if !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), d.want) {
				t.Errorf("error %q does not name %q and %q", err, key, d.want)
			}
			n.none("damaged")
			again := n.restore(key, "--name=again")[0]
			n.checkWhole(again, st.Boot, mib)
			if err := n.bed.RemovePod(n.ctx, again.ID); err != nil {
				t.Error(err)
			}
			n.restartAgent() // or the next restore could share what this one has read
		})
	}
	if err := n.bed.Containerd.Restart(n.ctx); err != nil {
		t.Errorf("containerd does not come back: %v", err)
	}
	n.checkWhole(n.restore(key, "--name=last")[0], st.Boot, mib)
	n.idle()
}

// manifest decodes a manifest.
func (n *node) manifest(file string) *storage.Manifest {
	n.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		n.Fatal(err)
	}
	m, err := storage.DecodeManifest(b)
	if err != nil {
		n.Fatal(err)
	}
	return m
}

// none fails the test if there is a pod of that name.
func (n *node) none(name string) {
	n.Helper()
	l, err := n.bed.Runtime.ListPodSandbox(n.ctx, &cri.ListPodSandboxRequest{})
	if err != nil {
		n.Fatal(err)
	}
	for _, p := range l.Items {
		if p.GetMetadata().GetName() == name {
			n.Errorf("pod %s is left behind: %s, %v", name, p.Id, p.State)
		}
	}
}

// idle waits until the agent has no request any more.
func (n *node) idle() {
	n.Helper()
	n.eventually("requests end", func() error {
		if left, _ := filepath.Glob("/run/diapause/requests/*"); len(left) > 0 {
			return fmt.Errorf("left behind: %v", left)
		}
		return nil
	})
}

// glob returns the files of that pattern in the spool and in the store.
func (n *node) glob(pattern string) (files []string) {
	n.Helper()
	for _, root := range []string{spoolRoot, storeRoot} {
		m, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil || len(m) == 0 {
			n.Fatalf("%s in %s: %v", pattern, root, err)
		}
		files = append(files, m...)
	}
	return files
}

// damage changes files (nil: removes them) and returns what puts them back.
func (n *node) damage(files []string, change func([]byte) []byte) (undo func()) {
	n.Helper()
	was := make(map[string][]byte)
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			n.Fatal(err)
		}
		was[f] = b
		if err := os.Remove(f); err != nil {
			n.Fatal(err)
		}
		if change != nil {
			n.write(f, change(append([]byte(nil), b...)))
		}
	}
	return func() {
		for f, b := range was {
			os.Remove(f)
			n.write(f, b)
		}
	}
}

func (n *node) write(file string, b []byte) {
	n.Helper()
	if err := os.WriteFile(file, b, 0o600); err != nil {
		n.Fatal(err)
	}
}

func flip(at float64) func([]byte) []byte {
	return func(b []byte) []byte {
		b[int(float64(len(b)-1)*at)] ^= 0x10
		return b
	}
}

// flipFile returns what flips a bit in the pack of a chunk of an image file: the chunk whose place among those with
// bytes is at, from 0 to 1. Bytes of a pack that no chunk names can be there: pages that changed while they were saved.
func flipFile(m *storage.Manifest, file string, at float64) func([]byte) []byte {
	var stored []storage.Chunk
	for _, f := range m.Files {
		for _, c := range f.Chunks {
			if f.Name == file && c.Codec != storage.CodecZero {
				stored = append(stored, c)
			}
		}
	}
	return func(b []byte) []byte {
		c := stored[int(float64(len(stored)-1)*at)]
		b[c.Offset+c.Stored/2] ^= 0x10
		return b
	}
}

func cut(at float64) func([]byte) []byte {
	return func(b []byte) []byte { return b[:int(float64(len(b))*at)] }
}

// TestOtherNode rewrites what a snapshot says of its node: it is refused, naming both sides.
func TestOtherNode(t *testing.T) {
	n := start(t)
	n.workload("origin", "serve", "--mib=1")
	n.checkpoint("origin", "--name=foreign")
	file := n.glob("default/snapshots/foreign/manifest")
	sound, err := os.ReadFile(file[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		change func(*snapshot.Facts)
		want   []string
	}{
		{
			"runsc version", func(f *snapshot.Facts) { f.RunscVersion = "release-19700101.0" },
			[]string{"runsc version", "release-19700101.0", "v0.0.0-"},
		},
		{
			"CPU feature", func(f *snapshot.Facts) { f.CPUFeatures = append(f.CPUFeatures, "warp_drive") },
			[]string{"CPU features", "warp_drive"},
		},
		{"architecture", func(f *snapshot.Facts) { f.Architecture = "arm64" }, []string{"architecture", "arm64", "amd64"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := storage.DecodeManifest(sound)
			if err != nil {
				t.Fatal(err)
			}
			tt.change(&m.Meta.Facts)
			b, err := storage.EncodeManifest(m)
			if err != nil {
				t.Fatal(err)
			}
			undo := n.damage(file, func([]byte) []byte { return b })
			defer undo()
			_, err = n.tryRestore("foreign")
			for _, w := range append(tt.want, "default/foreign") {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("error %v does not say %q", err, w)
				}
			}
		})
	}
}

// TestRefusals are restores that must not be.
func TestRefusals(t *testing.T) {
	n := start(t)
	n.workload("origin", "serve", "--mib=1")
	n.checkpoint("origin", "--name=mine")
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"unknown", []string{"nobody"}, "default/nobody"},
		{"hostile name", []string{"../../etc"}, "etc"},
		{"hostile pod name", []string{"mine", "--name=../x"}, "../x"},
		{"negative count", []string{"mine", "--count=-1"}, "-1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := n.tryRestore(tt.args...); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v does not name %q", err, tt.want)
			}
		})
	}
	t.Run("another namespace", func(t *testing.T) {
		spec := fromSnapshot("thief", "default/mine", "serve", "--mib=1")
		spec.Namespace = "other"
		if _, err := n.bed.RunPod(n.ctx, spec); err == nil || !strings.Contains(err.Error(), "namespace") {
			t.Errorf("error %v does not speak of the namespace", err)
		}
	})
	t.Run("kubelet", func(t *testing.T) {
		stop := n.fakeKubelet()
		defer stop()
		_, err := n.tryRestore("mine")
		for _, w := range []string{"kubelet", "diapause.dev/restore-from", "default/mine"} {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("error %v does not say %q", err, w)
			}
		}
	})
	n.restore("mine")
}
