package integration

import (
	"fmt"
	"strings"
	"testing"

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
	return bed.Container{Name: name, Image: images.Busybox, Command: []string{"/bin/sh", "-c",
		"head -c 8 /dev/urandom | od -An -tx8 > /boot; [ -e /first ] || cp /boot /first; exec sleep infinity"}}
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
	p, err := n.bed.RunPod(n.ctx, bed.PodSpec{Name: "origin", Containers: []bed.Container{scratch("app"), scratch("side")}})
	if err != nil {
		t.Fatal(err)
	}
	n.sh(p, "app", change)
	n.sh(p, "side", "echo beside > /side; echo volatile > /dev/shm/memory")
	want := n.sh(p, "app", look)
	boot := n.sh(p, "app", "cat /boot")

	s := n.checkpoint("--rootfs-only", "origin")
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
