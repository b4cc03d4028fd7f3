package integration

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	paths "diapause.dev/runsc/kubelet"
	"diapause.dev/test/bed"
)

// appending is the script of a container that holds a file of its volume open, and writes into it. It stops while there
// is a file that says so.
const appending = `head -c 8 /dev/urandom | od -An -tx8 > /tmp/boot; exec 3>>/out/log
while true; do [ -e /out/hold ] || echo line >&3; usleep 1000; done`

// appender runs a pod whose container appends to a file of a directory of the node.
func (n *node) appender(name, dir string, annotations map[string]string) (*bed.Pod, error) {
	return n.bed.RunPod(n.ctx, bed.PodSpec{Name: name, Annotations: annotations, Containers: []bed.Container{{
		Name: "app", Command: []string{"/bin/sh", "-c", appending},
		Mounts: []bed.Mount{{Host: dir, Container: "/out"}},
	}}})
}

// written waits until a pod has written more into its file.
func (n *node) written(dir string) {
	n.Helper()
	size := func() int64 {
		fi, err := os.Stat(filepath.Join(dir, "log"))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			n.Fatal(err)
		}
		if err != nil {
			return 0
		}
		return fi.Size()
	}
	from := size()
	n.eventually("the file grows", func() error {
		if size() < from+100 {
			return errors.New("it does not")
		}
		return nil
	})
}

// TestVolumeChanged: a pod that has written its volume after its checkpoint is not restored from that: the refusal
// names the volume and the file. One that was stopped is, and one whose annotation says so.
func TestVolumeChanged(t *testing.T) {
	n := start(t)
	dir := t.TempDir()
	p, err := n.appender("origin", dir, nil)
	must(t, err)
	n.written(dir)
	boot := n.sh(p, "app", "cat /tmp/boot")
	s := n.checkpoint("origin")
	n.written(dir)
	must(t, n.bed.RemovePod(n.ctx, p.ID))

	_, err = n.appender("refused", dir, restoring("default/"+s.Name))
	for _, word := range []string{"volume /out of container app", "has changed", "file log had", "volume-check: ignore"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%q is not in %v", word, err)
		}
	}
	n.refused([]string{"volume /out of container app", "has changed"}, "restore", s.Name, "--allow=host-path:"+dir)

	ignoring := map[string]string{"diapause.dev/volume-check": "ignore"}
	maps.Copy(ignoring, restoring("default/"+s.Name))
	p, err = n.appender("ignoring", dir, ignoring)
	must(t, err)
	if got := n.sh(p, "app", "cat /tmp/boot"); got != boot {
		t.Errorf("the process is %s, was %s", got, boot)
	}
	n.written(dir)
	for _, name := range []string{"once", "twice"} {
		s = n.checkpoint("--stop", p.ID)
		must(t, n.bed.RemovePod(n.ctx, p.ID))
		p, err = n.appender(name, dir, restoring("default/"+s.Name))
		must(t, err)
		if got := n.sh(p, "app", "cat /tmp/boot"); got != boot {
			t.Errorf("the process is %s, was %s", got, boot)
		}
		n.written(dir)
	}
}

// TestVolumeOlder: a file that is gone, or older than noted, has changed, too.
func TestVolumeOlder(t *testing.T) {
	n := start(t)
	dir := t.TempDir()
	p, err := n.appender("origin", dir, nil)
	must(t, err)
	n.written(dir)
	s := n.checkpoint("--stop", "origin")
	must(t, n.bed.RemovePod(n.ctx, p.ID))
	log := filepath.Join(dir, "log")
	fi, err := os.Stat(log)
	must(t, err, os.Truncate(log, fi.Size()-1))
	_, err = n.appender("shorter", dir, restoring("default/"+s.Name))
	if err == nil || !strings.Contains(err.Error(), "has changed") {
		t.Errorf("a file that is shorter: %v", err)
	}
	must(t, os.Truncate(log, fi.Size()), os.Chtimes(log, fi.ModTime(), fi.ModTime()))
	_, err = n.appender("whole", dir, restoring("default/"+s.Name))
	must(t, err)
	n.written(dir)
}

// TestVolumeWakes: a pod wakes although another program has written its volume while it slept.
func TestVolumeWakes(t *testing.T) {
	n := start(t)
	dir := t.TempDir()
	p, err := n.appender("origin", dir, nil)
	must(t, err)
	n.written(dir)
	boot := n.sh(p, "app", "cat /tmp/boot")
	n.asleep(p)
	log, err := os.OpenFile(filepath.Join(dir, "log"), os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	_, err = log.WriteString("of another program\n")
	must(t, err, log.Close())
	n.mustCLI("wake", "origin")
	if got := n.sh(p, "app", "cat /tmp/boot"); got != boot {
		t.Errorf("the process is %s, was %s", got, boot)
	}
	n.written(dir)
}

// claimant is a pod that mounts a part of a claim's volume, which lies in a directory. The kubelet mounts the part only
// when it makes the container.
func claimant(t *testing.T, name, dir string, annotations map[string]string) bed.PodSpec {
	t.Helper()
	k := newKubelet(t, "pod-"+name)
	whole := filepath.Join(paths.Root, "pods", k.uid, "volumes/kubernetes.io~csi/pv/mount")
	part := k.part("pv", "app")
	bind := func(from, to string) error {
		if err := errors.Join(os.MkdirAll(from, 0o755), os.MkdirAll(to, 0o755)); err != nil {
			return err
		}
		if err := syscall.Mount(from, to, "", syscall.MS_BIND, ""); err != nil {
			return err
		}
		t.Cleanup(func() { must(t, syscall.Unmount(to, syscall.MNT_DETACH)) })
		return nil
	}
	must(t, bind(dir, whole))
	return bed.PodSpec{
		Name: name, UID: k.uid, Annotations: annotations,
		Made: func() error { return bind(filepath.Join(whole, "sub"), part) },
		Containers: []bed.Container{{
			Name: "app", Command: []string{"/bin/sh", "-c", appending},
			Mounts: []bed.Mount{{Host: part, Container: "/out"}},
		}},
	}
}

// TestVolumeClaim: a part of a claim's volume is compared in the directory of the new pod, before it is mounted there.
func TestVolumeClaim(t *testing.T) {
	n := start(t)
	dir := t.TempDir()
	sub := filepath.Join(dir, "sub")
	p, err := n.bed.RunPod(n.ctx, claimant(t, "origin", dir, nil))
	must(t, err)
	n.written(sub)
	boot := n.sh(p, "app", "cat /tmp/boot")
	s := n.checkpoint("--stop", "origin")
	must(t, n.bed.RemovePod(n.ctx, p.ID))
	p, err = n.bed.RunPod(n.ctx, claimant(t, "again", dir, restoring("default/"+s.Name)))
	must(t, err)
	if got := n.sh(p, "app", "cat /tmp/boot"); got != boot {
		t.Errorf("the process is %s, was %s", got, boot)
	}
	s = n.checkpoint("again")
	n.written(sub)
	must(t, n.bed.RemovePod(n.ctx, p.ID))
	_, err = n.bed.RunPod(n.ctx, claimant(t, "refused", dir, restoring("default/"+s.Name)))
	for _, word := range []string{"volume /out of container app", "has changed", "file log had"} {
		if err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%q is not in %v", word, err)
		}
	}
}
