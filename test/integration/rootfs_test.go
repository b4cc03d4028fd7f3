package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"diapause.dev/api/snapshot"
	"diapause.dev/runsc"
	"diapause.dev/storage"
	"diapause.dev/test/bed"
	"diapause.dev/test/images"
)

// sh runs a script in a container of a pod and returns what it prints.
func (n *node) sh(p *bed.Pod, container, script string) string {
	n.Helper()
	var out string
	n.eventually(p.Name+" runs a script", func() error {
		text, code, err := n.bed.Exec(n.ctx, p.Container(container), "/bin/sh", "-c", script)
		if err == nil && code != 0 {
			err = fmt.Errorf("exit code %d: %s", code, text)
		}
		out = strings.TrimSpace(text)
		return err
	})
	return out
}

// scratch is a container whose process says which it is, in a file that is new with every start of it.
func scratch(name string) bed.Container {
	return bed.Container{Name: name, Image: images.Busybox, Command: []string{
		"/bin/sh", "-c",
		"head -c 8 /dev/urandom | od -An -tx8 > /boot; [ -e /first ] || cp /boot /first; exec sleep infinity",
	}}
}

// change changes files of a container's root file system in every way.
const change = `set -e
mkdir -p /work/sub; echo written > /work/sub/a; echo moved > /work/old; mv /work/old /work/new
echo gone > /work/gone; rm /work/gone; rm /etc/passwd; echo changed > /etc/hosts.saved
ln -s a /work/sub/link; ln /work/sub/a /work/sub/hard; chmod 640 /work/sub/a; chown 12:34 /work/new
dd if=/dev/zero bs=1M count=1 of=/work/sparse seek=64 2>/dev/null
head -c 3000000 /dev/urandom > /work/random; md5sum < /work/random > /work/sum`

// look says what has become of them.
const look = `cat /work/sub/a /work/new /etc/hosts.saved; readlink /work/sub/link
stat -c '%a %u:%g %h' /work/sub/a /work/new; ls /work; ls /etc/passwd /work/gone 2>&1 | grep -c 'No such'
stat -c %s /work/sparse; md5sum < /work/random | cmp - /work/sum && echo same`

// TestRootfsOnly saves root file systems alone: files come back as they were, processes start anew.
func TestRootfsOnly(t *testing.T) {
	n := start(t)
	p, err := n.bed.RunPod(n.ctx, bed.PodSpec{
		Name:       "origin",
		Containers: []bed.Container{scratch("app"), scratch("side")},
	})
	if err != nil {
		t.Fatal(err)
	}
	n.sh(p, "app", change)
	n.sh(p, "side", "echo beside > /side; echo volatile > /dev/shm/memory")
	want := n.sh(p, "app", look)
	boot := n.sh(p, "app", "cat /boot")

	onDisk, err := runsc.FileStoreUsage(n.sentry(p))
	if err != nil {
		t.Fatal(err)
	}
	s := n.checkpoint("--rootfs-only", "origin")
	if onDisk < s.RawBytes/100*95 || onDisk > 4*s.RawBytes { // the smallest file takes a page
		t.Errorf("%d bytes were known to be on disk before the checkpoint, it holds %d", onDisk, s.RawBytes)
	}
	n.sh(p, "app", "echo later > /work/later") // the origin runs on

	b := n.restore(s.Name, "--name=again")[0]
	if got := n.sh(b, "app", look); got != want {
		t.Errorf("files are\n%s\nwere\n%s", got, want)
	}
	if got := n.sh(b, "app", "cat /first"); got != boot {
		t.Errorf("the file of the first process says %q, said %q", got, boot)
	}
	if got := n.sh(b, "app", "cat /boot"); got == boot {
		t.Error("the process did not start anew")
	}
	if got := n.sh(b, "side", "cat /side; ls /dev/shm"); got != "beside" {
		t.Errorf("the side container has %q", got)
	}
}

// bulky returns a pod with some MiB of files that do not compress, and their sum.
func (n *node) bulky(name string, mib int) (p *bed.Pod, sum string) {
	n.Helper()
	p, err := n.bed.RunPod(n.ctx, bed.PodSpec{Name: name, Containers: []bed.Container{scratch("app")}})
	if err != nil {
		n.Fatal(err)
	}
	return p, n.sh(p, "app", fmt.Sprintf("head -c %d /dev/urandom > /bulk && md5sum /bulk", mib<<20))
}

// TestRootfsAgentKilled kills the agent while files are being loaded: the sandbox lives on, and has
// them all from the next agent.
func TestRootfsAgentKilled(t *testing.T) {
	n := start(t)
	p, sum := n.bulky("origin", 128)
	s := n.checkpoint("--rootfs-only", "--no-wait", p.ID)
	interrupted := 0
	for i, after := range []time.Duration{0, 100, 300} {
		spec := fromSnapshot(fmt.Sprintf("killed-%d", i), "default/"+s.Name)
		spec.Containers = []bed.Container{scratch("app")}
		pod := n.interrupted(spec, after*time.Millisecond, func() {
			if !n.allLoaded() {
				interrupted++
			}
		})
		if got := n.sh(pod, "app", "md5sum /bulk"); got != sum {
			t.Errorf("killed after %v ms: files are %s, were %s", int64(after), got, sum)
		}
		if err := n.bed.RemovePod(n.ctx, pod.ID); err != nil {
			t.Error(err)
		}
		n.eventually("the request ends with its sandbox", func() error {
			if m, _ := filepath.Glob("/run/diapause/requests/*"); len(m) > 0 {
				return fmt.Errorf("left: %v", m)
			}
			return nil
		})
	}
	t.Logf("%d restores were interrupted", interrupted)
	if interrupted == 0 {
		t.Error("no kill came before the sandbox had all its files")
	}
}

// allLoaded reports whether the agent has noted of every restore that its sandbox has all its files.
func (n *node) allLoaded() bool {
	n.Helper()
	files := n.restores()
	if len(files) == 0 {
		n.Fatal("no restore is under way")
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			n.Fatal(err)
		}
		if !strings.Contains(string(b), `"loaded":true`) {
			return false
		}
	}
	return true
}

// TestRootfsDamaged damages what is stored: the restore is refused or ends its sandbox, nothing
// hangs, and the next one works.
func TestRootfsDamaged(t *testing.T) {
	n := start(t)
	p, sum := n.bulky("origin", 16)
	s := n.checkpoint("--rootfs-only", "--name=sound", p.ID)
	key := "default/" + s.Name
	packs := n.glob("default/packs/*")
	for _, d := range []struct {
		name   string
		damage func([]byte) []byte
	}{
		{"pack missing", nil},
		{"pack truncated", cut(0.7)},
		{"small files flipped", flip(0.00001)},
		{"page flipped", flip(0.3)},
		{"last page flipped", flip(0.999)},
	} {
		t.Run(d.name, func(t *testing.T) {
			undo := n.damage(packs, d.damage)
			pods, err := n.tryRestore(key, "--name=damaged")
			undo()
			if err == nil {
				t.Fatalf("restored as %v", pods)
			}
			if !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "packs/") {
				t.Errorf("error %q does not name %q and the pack", err, key)
			}
			n.none("damaged")
			again := n.restore(key, "--name=again")[0]
			if got := n.sh(again, "app", "md5sum /bulk"); got != sum {
				t.Errorf("files are %s, were %s", got, sum)
			}
			if err := n.bed.RemovePod(n.ctx, again.ID); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRootfsFacts: another processor will do, another runsc will not.
func TestRootfsFacts(t *testing.T) {
	n := start(t)
	p, sum := n.bulky("origin", 1)
	n.checkpoint("--rootfs-only", "--stop", "--name=foreign", p.ID)
	file := n.glob("default/snapshots/foreign/manifest")
	sound, err := os.ReadFile(file[0])
	if err != nil {
		t.Fatal(err)
	}
	with := func(change func(*snapshot.Meta)) (undo func()) {
		m, err := storage.DecodeManifest(sound)
		if err != nil {
			t.Fatal(err)
		}
		change(&m.Meta)
		b, err := storage.EncodeManifest(m)
		if err != nil {
			t.Fatal(err)
		}
		return n.damage(file, func([]byte) []byte { return b })
	}
	undo := with(func(m *snapshot.Meta) { m.Facts.RunscDigest = "00ff" })
	if _, err := n.tryRestore("foreign"); err == nil || !strings.Contains(err.Error(), "runsc binary differs") ||
		!strings.Contains(err.Error(), "00ff") {
		t.Errorf("another runsc: %v", err)
	}
	undo()
	undo = with(func(m *snapshot.Meta) { m.Scope = "half" })
	if _, err := n.tryRestore("foreign"); err == nil || !strings.Contains(err.Error(), `scope "half" is not known`) {
		t.Errorf("another scope: %v", err)
	}
	undo()
	defer with(func(m *snapshot.Meta) { m.Facts.CPUFeatures = append(m.Facts.CPUFeatures, "warp_drive") })()
	b := n.restore("foreign", "--name=here")[0]
	if got := n.sh(b, "app", "md5sum /bulk"); got != sum {
		t.Errorf("files are %s, were %s", got, sum)
	}
	if out := n.mustCLI("inspect", "foreign"); !strings.Contains(out, "rootfs-only") ||
		!strings.Contains(out, "multitar.img") {
		t.Errorf("inspect prints %s", out)
	}
}

// TestRootfsStartedAgain starts a container of a restored pod again: it has the files of the snapshot
// once more. Once the snapshot is gone, which nothing keeps from being removed, the sandbox ends
// rather than run without them.
func TestRootfsStartedAgain(t *testing.T) {
	n := start(t)
	p, sum := n.bulky("origin", 4)
	s := n.checkpoint("--rootfs-only", p.ID)
	b := n.restore(s.Name, "--name=again")[0]
	n.sh(b, "app", "echo x >> /bulk; echo new > /new")
	id := n.startAgain(b, 1)
	b.Containers[0].ID = id
	if got := n.sh(b, "app", "md5sum /bulk; ls /new 2>/dev/null; true"); got != sum {
		t.Errorf("started again with %s, were %s", got, sum)
	}
	n.agent.Kill()
	n.startAgent()
	n.mustCLI("rm", s.Name)
	n.agent.Kill() // its sidecar now opens what is not there any more
	n.startAgent()
	if got := n.sh(b, "app", "md5sum /bulk"); got != sum {
		t.Errorf("without its snapshot a pod has %s, had %s", got, sum)
	}
	n.startAgain(b, 2)
	n.eventually("the sandbox ends", func() error {
		r, err := n.bed.Runtime.PodSandboxStatus(n.ctx, &cri.PodSandboxStatusRequest{PodSandboxId: b.ID})
		if err == nil && r.Status.State == cri.PodSandboxState_SANDBOX_READY {
			err = errors.New("it is ready")
		}
		return err
	})
}

// startAgain ends the first container of a pod and starts it again, as a kubelet does.
func (n *node) startAgain(p *bed.Pod, attempt uint32) (id string) {
	n.Helper()
	c := scratch("app")
	if err := n.bed.StopContainer(n.ctx, p.Containers[0].ID, 0); err != nil {
		n.Fatal(err)
	}
	made, err := n.bed.Runtime.CreateContainer(n.ctx, &cri.CreateContainerRequest{
		PodSandboxId: p.ID,
		Config: &cri.ContainerConfig{
			Metadata: &cri.ContainerMetadata{Name: "app", Attempt: attempt}, Image: &cri.ImageSpec{Image: c.Image},
			Command: c.Command,
			Linux:   &cri.LinuxContainerConfig{},
		},
		SandboxConfig: &cri.PodSandboxConfig{Metadata: &cri.PodSandboxMetadata{
			Name: p.Name, Namespace: p.Namespace,
			Uid: p.UID,
		}},
	})
	if err != nil {
		n.Fatal(err)
	}
	if _, err := n.bed.Runtime.StartContainer(n.ctx,
		&cri.StartContainerRequest{ContainerId: made.ContainerId}); err != nil {
		n.Logf("started again: %v", err)
	}
	return made.ContainerId
}
