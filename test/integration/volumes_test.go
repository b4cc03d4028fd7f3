package integration

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	paths "diapause.dev/runsc/kubelet"
	"diapause.dev/test/bed"
	"diapause.dev/test/images"
)

// kubelet does for one pod what a kubelet does with emptyDir volumes.
type kubelet struct {
	*testing.T
	uid string
}

// newKubelet makes the directories of a pod's volumes.
func newKubelet(t *testing.T, uid string, volumes ...string) *kubelet {
	t.Helper()
	k := &kubelet{t, uid}
	for _, name := range volumes {
		must(t, os.MkdirAll(k.dir(name), 0o755), os.Chmod(k.dir(name), 0o777))
	}
	t.Cleanup(func() { must(t, os.RemoveAll(filepath.Join(paths.Root, "pods", uid))) })
	return k
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// dir returns the directory of a volume.
func (k *kubelet) dir(name string) string {
	dir, err := paths.VolumeDir(k.uid, name)
	must(k.T, err)
	return dir
}

// part returns where a part of a volume is mounted for a container.
func (k *kubelet) part(name, container string) string {
	return filepath.Join(paths.Root, "pods", k.uid, "volume-subpaths", name, container, "0")
}

// mount mounts a part of a volume for a container until the test ends, and makes the directory if there is none.
func (k *kubelet) mount(name, sub, container string) error {
	from, to := filepath.Join(k.dir(name), sub), k.part(name, container)
	for _, dir := range []string{from, to} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := syscall.Mount(from, to, "", syscall.MS_BIND, ""); err != nil {
		return err
	}
	k.Cleanup(func() { must(k.T, syscall.Unmount(to, syscall.MNT_DETACH)) })
	return nil
}

// holding is the script of a container that holds two files open: one of which it has read the first line, and one
// that has no name any more. Told to, it reads on in both.
const holding = `head -c 8 /dev/urandom | od -An -tx8 > /tmp/boot
while [ ! -e /shared/sub/lines ]; do usleep 10000; done
exec 3</shared/sub/lines; read first <&3
echo nameless > /shared/gone; exec 4</shared/gone; rm /shared/gone
touch /tmp/holding
while [ ! -e /tmp/go ]; do usleep 10000; done
read second <&3; read gone <&4; echo "$first $second $gone" > /tmp/read; exec sleep infinity`

// furnishing makes files of every kind in a volume.
const furnishing = `cd /part; set -e; printf 'one\ntwo\nthree\n' > lines.new; mv lines.new lines
echo -n x > plain; ln plain hard; ln -s plain soft; ln -s /etc/passwd away; mkdir -p deep/er
head -c 300000 /dev/urandom > bulk; dd if=/dev/zero of=holes bs=1 count=1 seek=100000000 2>/dev/null
chown 12:34 plain; chmod 6751 bulk; chmod 1777 deep; chown -h 5:6 soft; touch -d '2001-02-03 04:05:06' deep/er
cd /alone; echo alone > mark; chmod 600 mark`

// paired is a pod of two containers that share one volume, of which one mounts a part, and where one mounts a part of
// another.
func paired(name string, k *kubelet, annotations map[string]string) bed.PodSpec {
	return bed.PodSpec{
		Name: name, UID: k.uid, Annotations: annotations,
		Made: func() error {
			if err := k.mount("shared", "sub", "side"); err != nil {
				return err
			}
			return k.mount("alone", "some/where", "side")
		},
		Containers: []bed.Container{
			{
				Name: "app", Command: []string{"/bin/sh", "-c", holding},
				Mounts: []bed.Mount{{Host: k.dir("shared"), Container: "/shared"}},
			},
			{Name: "side", Image: images.Busybox, Command: []string{"/bin/sleep", "infinity"}, Mounts: []bed.Mount{
				{Host: k.part("shared", "side"), Container: "/part"}, {Host: k.part("alone", "side"), Container: "/alone"},
			}},
		},
	}
}

// tree tells what is in a volume on the node. When its directory was changed last is left out: gVisor makes files that
// have no name any more anew, and takes their names away.
func (k *kubelet) tree(name string) string {
	k.Helper()
	script := `cd "$0" && find . \( -path . -printf '%p %y %m %U:%G\n' \) ` +
		`-o \( -type d -printf '%p %y %m %U:%G %T@\n' \) -o -printf '%p %y %m %U:%G %n %s %T@ %l\n' | sort; ` +
		`find . -type f | sort | xargs md5sum`
	out, err := exec.Command("/bin/sh", "-c", script, k.dir(name)).CombinedOutput()
	if err != nil {
		k.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

func restoring(key string) map[string]string {
	return map[string]string{"diapause.dev/restore-from": key, "diapause.dev/on-restore-failure": "Fail"}
}

// furnished runs a pod whose volumes lie on the node and have something of everything.
func (n *node) furnished() (*kubelet, *bed.Pod) {
	n.Helper()
	k := newKubelet(n.T, "pod-origin", "shared", "alone")
	p, err := n.bed.RunPod(n.ctx, paired("origin", k, nil))
	must(n.T, err)
	n.sh(p, "side", furnishing)
	n.sh(p, "app", "[ -e /tmp/holding ]")
	return k, p
}

// TestVolumes freezes a pod whose volumes lie on the node, of which its containers mount parts, and brings it
// back among other directories: files are as they were, open ones too, and the containers share them.
func TestVolumes(t *testing.T) {
	n := start(t)
	k, p := n.furnished()
	boot := n.sh(p, "app", "cat /tmp/boot")
	s := n.checkpoint("--stop", "origin")
	shared, alone := k.tree("shared"), k.tree("alone")
	must(t, n.bed.RemovePod(n.ctx, p.ID))

	for _, name := range []string{"one", "two"} {
		k := newKubelet(t, "pod-"+name, "shared", "alone")
		p, err := n.bed.RunPod(n.ctx, paired(name, k, restoring("default/"+s.Name)))
		must(t, err)
		if got := k.tree("shared"); got != shared {
			t.Errorf("the shared volume is\n%s\nwas\n%s", got, shared)
		}
		if got := k.tree("alone"); got != alone {
			t.Errorf("the other volume is\n%s\nwas\n%s", got, alone)
		}
		if got := n.sh(p, "app", "cat /tmp/boot"); got != boot {
			t.Errorf("the process is %s, was %s", got, boot)
		}
		n.sh(p, "app", "touch /tmp/go")
		if got := n.sh(p, "app", "cat /tmp/read"); got != "one two nameless" {
			t.Errorf("open files say %q", got)
		}
		n.sh(p, "side", "echo beside > /part/mark; cat /alone/mark")
		if got := n.sh(p, "app", "cat /shared/sub/mark"); got != "beside" {
			t.Errorf("what the containers share is %q", got)
		}
		n.checkpoint(p.ID)
		must(t, n.bed.RemovePod(n.ctx, p.ID))
	}
}

// TestVolumesRootfs does so with files alone.
func TestVolumesRootfs(t *testing.T) {
	n := start(t)
	k, p := n.furnished()
	s := n.checkpoint("--rootfs-only", "origin")
	shared := k.tree("shared")
	must(t, n.bed.RemovePod(n.ctx, p.ID))
	again := newKubelet(t, "pod-again", "shared")
	spec := paired("again", again, restoring("default/"+s.Name))
	spec.Made = func() error { return again.mount("shared", "sub", "side") }
	spec.Containers[0].Command, spec.Containers[1].Mounts = []string{"/bin/sleep", "infinity"},
		spec.Containers[1].Mounts[:1]
	p, err := n.bed.RunPod(n.ctx, spec)
	must(t, err)
	if got := again.tree("shared"); got != shared {
		t.Errorf("the volume is\n%s\nwas\n%s", got, shared)
	}
	if got := n.sh(p, "side", "cat /part/plain"); got != "x" {
		t.Errorf("the file says %q", got)
	}
}

// TestVolumesWorkload has a process save its own sandbox, whose volume lies on the node.
func TestVolumesWorkload(t *testing.T) {
	n := start(t)
	saving := func(name string, k *kubelet, annotations map[string]string) bed.PodSpec {
		spec := single(name, k, annotations)
		spec.Annotations["dev.gvisor.internal.checkpoint.enable"] = "true"
		spec.Containers[0].Command = []string{"/bin/sh", "-c", selfSaving}
		return spec
	}
	k := newKubelet(t, "pod-origin", "data")
	p, err := n.bed.RunPod(n.ctx, saving("author", k, map[string]string{}))
	must(t, err)
	n.sh(p, "app", "echo saved > /data/mark")
	n.touch(p, "/tmp/go")
	if got := n.readFile(p, "/tmp/result"); got != "resume" {
		t.Errorf("the origin read %q", got)
	}
	s := n.madeOf(p)
	n.sh(p, "app", "echo later > /data/mark")
	again := newKubelet(t, "pod-again", "data")
	p, err = n.bed.RunPod(n.ctx, saving("again", again, restoring("default/"+s.Name)))
	must(t, err)
	if got := n.readFile(p, "/tmp/result"); got != "restore" {
		t.Errorf("the branch read %q", got)
	}
	if got := n.readFile(p, "/data/mark"); got != "saved" {
		t.Errorf("the volume says %q", got)
	}
}

// TestVolumesInherit takes two snapshots of a pod, whose volume has another large file in between: what was there is
// not stored again.
func TestVolumesInherit(t *testing.T) {
	n := start(t)
	k := newKubelet(t, "pod-origin", "data")
	p, err := n.bed.RunPod(n.ctx, single("origin", k, nil))
	must(t, err)
	n.sh(p, "app", "head -c 30000000 /dev/urandom > /data/m")
	n.checkpoint("origin")
	before := n.packed()
	n.sh(p, "app", "head -c 1000000 /dev/urandom > /data/a; echo > /data/z")
	n.checkpoint("origin")
	if grown := n.packed() - before; grown < 1_000_000 || grown > 10_000_000 {
		t.Errorf("the spool has grown by %d bytes from %d", grown, before)
	}
}

// packed returns how many bytes of packs are in the spool.
func (n *node) packed() (sum int64) {
	n.Helper()
	packs, err := filepath.Glob(filepath.Join(spoolRoot, "*/packs/*"))
	must(n.T, err)
	for _, p := range packs {
		fi, err := os.Stat(p)
		must(n.T, err)
		sum += fi.Size()
	}
	return sum
}

// TestVolumesRefused cannot have volumes in a snapshot, or not put them in place: it says why, the pod runs on or is
// not made, and nothing stays in a volume.
func TestVolumesRefused(t *testing.T) {
	n := start(t)
	_, p := n.furnished()
	s := n.checkpoint("origin")

	n.restartAgent("--volume-limit=100000")
	n.refused([]string{"volume shared", "more than"}, "checkpoint", "origin")
	n.refused([]string{"volume shared", "more than"}, "checkpoint", "--rootfs-only", "origin")
	n.unpaused(p)
	n.sh(p, "app", "true")
	n.refusedPod(newKubelet(t, "pod-over", "shared", "alone"), s.Name, "volume shared: too much")
	n.restartAgent()
	n.checkpoint("origin")

	n.refusedPod(newKubelet(t, "pod-missing", "alone"), s.Name, "no such volume")
	full := newKubelet(t, "pod-full", "shared", "alone")
	tmpfs(t, full.dir("shared"), "size=64k,mode=0777")
	n.refusedPod(full, s.Name, "no space left")
	occupied := newKubelet(t, "pod-occupied", "shared", "alone")
	must(t, os.WriteFile(filepath.Join(occupied.dir("shared"), "mine"), nil, 0o600))
	n.refusedPod(occupied, s.Name, "not empty", "mine")
}

// refusedPod tries to restore a pod: it is refused for a reason, and nothing but what was there is in its volumes.
func (n *node) refusedPod(k *kubelet, snapshot, why string, there ...string) {
	n.Helper()
	p, err := n.bed.RunPod(n.ctx, paired(strings.TrimPrefix(k.uid, "pod-"), k, restoring("default/"+snapshot)))
	if err == nil {
		n.Errorf("%s is restored", k.uid)
		must(n.T, n.bed.RemovePod(n.ctx, p.ID))
		return
	}
	if !strings.Contains(err.Error(), why) {
		n.Errorf("%s: %q is not in %v", k.uid, why, err)
	}
	var in []string
	for _, name := range []string{"shared", "alone"} {
		fi, err := os.Stat(k.dir(name))
		if os.IsNotExist(err) {
			continue
		}
		must(n.T, err)
		if fi.Mode().Perm() != 0o777 {
			n.Errorf("%s: volume %s is %v", k.uid, name, fi.Mode())
		}
		entries, err := os.ReadDir(k.dir(name))
		must(n.T, err)
		for _, e := range entries {
			in = append(in, e.Name())
		}
	}
	if !slices.Equal(in, there) {
		n.Errorf("%s: the volumes have %v", k.uid, in)
	}
}
