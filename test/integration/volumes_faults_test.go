package integration

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"diapause.dev/test/bed"
)

// single is a pod of one container that mounts a whole volume.
func single(name string, k *kubelet, annotations map[string]string) bed.PodSpec {
	return bed.PodSpec{Name: name, UID: k.uid, Annotations: annotations, Containers: []bed.Container{
		{
			Name: "app", Command: []string{"/bin/sleep", "infinity"},
			Mounts: []bed.Mount{{Host: k.dir("data"), Container: "/data"}},
		},
	}}
}

// TestVolumesSpoolFull checkpoints a pod whose volume does not fit into the spool.
func TestVolumesSpoolFull(t *testing.T) {
	at := newPlace(t)
	tmpfs(t, at.state, "size=16m")
	n := start(t, at.flags("--disk-floor=0")...) // which would refuse what has no room
	k := newKubelet(t, "pod-origin", "data")
	p, err := n.bed.RunPod(n.ctx, single("origin", k, nil))
	must(t, err)
	n.sh(p, "app", "head -c 20000000 /dev/urandom > /data/bulk")
	for _, args := range [][]string{
		{"checkpoint", "origin"},
		{"checkpoint", "--stop", "origin"},
		{"checkpoint", "--rootfs-only", "origin"},
	} {
		n.refused([]string{"volume data", "no space left"}, args...)
		n.unpaused(p)
		n.sh(p, "app", "date > /data/now")
	}
	n.resize(at.state, "size=512m")
	n.checkpoint("origin")
}

// TestVolumesHinted freezes a pod whose volume would be inside the sandbox, if it had been empty, and one whose
// volume nobody wanted there. It stays on the node with pods for which it would be inside.
func TestVolumesHinted(t *testing.T) {
	n := start(t)
	hints := map[string]string{}
	for key, value := range map[string]string{"type": "bind", "share": "pod", "options": "rw"} {
		hints["dev.gvisor.spec.mount.data."+key] = value
	}
	for _, x := range []struct {
		name, before string
		annotations  map[string]string
	}{{"occupied", "early", hints}, {"empty", "", nil}} {
		t.Run(x.name, func(t *testing.T) {
			k := newKubelet(t, "pod-"+x.name, "data")
			if x.before != "" {
				must(t, os.WriteFile(filepath.Join(k.dir("data"), x.before), nil, 0o644))
			}
			_, err := n.bed.RunPod(n.ctx, single(x.name, k, x.annotations))
			must(t, err)
			s := n.checkpoint(x.name)
			all := restoring("default/" + s.Name)
			maps.Copy(all, hints)
			again := newKubelet(t, "pod-again-"+x.name, "data")
			p, err := n.bed.RunPod(n.ctx, single("again-"+x.name, again, all))
			must(t, err)
			n.sh(p, "app", "echo new > /data/file")
			if got := n.sh(p, "app", "ls /data | grep -v file || true"); got != x.before {
				t.Errorf("the volume has %q, had %q", got, x.before)
			}
			if _, err := os.Stat(filepath.Join(again.dir("data"), "file")); err != nil {
				t.Error("the volume is not on the node any more")
			}
		})
	}
}

// bulkyVolume makes a snapshot of a pod with a volume of some size, and returns its name and the volume's sum.
func (n *node) bulkyVolume(mib string) (snapshot, sum string) {
	n.Helper()
	k := newKubelet(n.T, "pod-origin", "data")
	p, err := n.bed.RunPod(n.ctx, single("origin", k, nil))
	must(n.T, err)
	sum = n.sh(p, "app", "cd /data; for i in 1 2 3 4; do head -c "+mib+"000000 /dev/urandom > $i; done; md5sum *")
	return n.checkpoint(p.ID).Name, sum
}

// filling runs a pod that is to be restored, and returns when its volume is being filled and the agent, in the midst
// of that, is stopped by SIGSTOP.
func (n *node) filling(spec bed.PodSpec, k *kubelet) (pod **bed.Pod, started <-chan error) {
	n.Helper()
	pod = new(*bed.Pod)
	done := make(chan error, 1)
	go func() {
		var err error
		*pod, err = n.bed.RunPod(n.ctx, spec)
		done <- err
	}()
	n.eventually("the volume is being filled", func() error {
		if in, err := os.ReadDir(k.dir("data")); err != nil || len(in) == 0 {
			return errors.Join(errors.New("it is empty"), err)
		}
		return nil
	})
	n.signal(n.agent.PID(), syscall.SIGSTOP)
	return pod, done
}

// TestVolumesAgentKilled kills the agent while a volume is being filled: the next one sends the rest.
func TestVolumesAgentKilled(t *testing.T) {
	n := start(t)
	s, sum := n.bulkyVolume("25")
	k := newKubelet(t, "pod-again", "data")
	pod, started := n.filling(single("again", k, restoring("default/"+s)), k)
	n.agent.Kill()
	n.startAgent()
	must(t, <-started)
	if got := n.sh(*pod, "app", "cd /data; md5sum *"); got != sum {
		t.Errorf("the volume has\n%s\nhad\n%s", got, sum)
	}
}

// TestVolumesShimKilled kills the shim while a volume is being filled: a pod that is started anew finds it empty.
func TestVolumesShimKilled(t *testing.T) {
	n := start(t)
	s, sum := n.bulkyVolume("25")
	k := newKubelet(t, "pod-again", "data")
	others := n.shims()
	_, started := n.filling(single("again", k, restoring("default/"+s)), k)
	for pid := range n.shims() {
		if !others[pid] {
			n.signal(pid, syscall.SIGKILL)
		}
	}
	n.signal(n.agent.PID(), syscall.SIGCONT)
	if err := <-started; err == nil {
		t.Fatal("the pod runs without its shim")
	}
	if in, err := os.ReadDir(k.dir("data")); err != nil || len(in) == 0 {
		t.Fatalf("nothing is left to be taken out: %v, %v", in, err)
	}
	p, err := n.bed.RunPod(n.ctx, single("cold", k, nil))
	must(t, err)
	if got := n.sh(p, "app", "ls /data"); got != "" {
		t.Errorf("a pod that starts anew finds %q", got)
	}
	must(t, n.bed.RemovePod(n.ctx, p.ID))
	p, err = n.bed.RunPod(n.ctx, single("third", k, restoring("default/"+s)))
	must(t, err)
	if got := n.sh(p, "app", "cd /data; md5sum *"); got != sum {
		t.Errorf("the volume has\n%s\nhad\n%s", got, sum)
	}
}

// shims returns the processes of the shim.
func (n *node) shims() map[int]bool {
	n.Helper()
	all := make(map[int]bool)
	links, err := filepath.Glob("/proc/[0-9]*/exe")
	must(n.T, err)
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && filepath.Base(to) == "containerd-shim-diapause-v1" {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(link)))
			must(n.T, err)
			all[pid] = true
		}
	}
	return all
}

// TestVolumesDamaged damages what is stored, of a volume and of the kernel's state, which comes after it: the restore
// is refused or fails, and the volume is empty.
func TestVolumesDamaged(t *testing.T) {
	n := start(t)
	s, sum := n.bulkyVolume("4")
	packs := n.glob("default/packs/*")
	for name, at := range map[string]int{"volume": 5_000_000, "state": 16_030_000} {
		t.Run(name, func(t *testing.T) {
			k := newKubelet(t, "pod-"+name, "data")
			undo := n.damage(packs, func(b []byte) []byte {
				b[at] ^= 1
				return b
			})
			_, err := n.bed.RunPod(n.ctx, single(name, k, restoring("default/"+s)))
			undo()
			if err == nil {
				t.Fatal("it is restored")
			}
			if damaged := strings.Contains(err.Error(), "volume data"); damaged != (name == "volume") {
				t.Errorf("the reason is %v", err)
			}
			if in, err := os.ReadDir(k.dir("data")); err != nil || len(in) > 0 {
				t.Errorf("the volume has %v, %v", in, err)
			}
			p, err := n.bed.RunPod(n.ctx, single(name, k, restoring("default/"+s)))
			must(t, err)
			if got := n.sh(p, "app", "cd /data; md5sum *"); got != sum {
				t.Errorf("the volume has\n%s\nhad\n%s", got, sum)
			}
		})
	}
	cold := newKubelet(t, "pod-cold", "data")
	undo := n.damage(packs, flip(0.3))
	defer undo()
	p, err := n.bed.RunPod(n.ctx, single("cold", cold, map[string]string{"diapause.dev/restore-from": "default/" + s}))
	must(t, err)
	if got := n.sh(p, "app", "ls /data"); got != "" {
		t.Errorf("a pod that starts cold finds %q", got)
	}
}
