package integration

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// pod is a sandbox with a second container, whose guest writes its files to its root file system.
type pod struct {
	*sandbox
	app, bundle, logs string
}

func newPod(t *testing.T, build, id string) *pod {
	t.Helper()
	p := &pod{sandbox: emptySandbox(t, build, id), app: "app-of-" + id, bundle: t.TempDir(), logs: t.TempDir()}
	p.flags = []string{"--debug", "--debug-log=" + p.logs + "/"}
	writeBundle(t, p.root, map[string]string{
		"io.kubernetes.cri.container-type": "sandbox", "io.kubernetes.cri.container-name": "",
	}, "--dir=/data", "--files=20", "--threads=2")
	writeBundle(t, p.bundle, map[string]string{
		"io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.sandbox-id": id,
		"io.kubernetes.cri.container-name": "app",
	}, "--dir=/files", "--files=2000", "--waiting=300", "--threads=30")
	t.Cleanup(func() {
		if err := p.command("delete", "--force", p.app).Run(); err != nil {
			t.Errorf("remove %s: %v", p.app, err)
		}
	})
	return p
}

// startApp creates and starts the second container, in a restored sandbox too.
func (p *pod) startApp(t *testing.T) {
	t.Helper()
	p.run(t, "create", "--bundle", p.bundle, p.app)
	p.run(t, "start", p.app)
}

// ask asks the guest in the second container to check or to wait.
func (p *pod) ask(t *testing.T, question string) {
	t.Helper()
	p.run(t, "exec", p.app, "/guest", "--ask="+question, "--socket="+socket)
}

// awaitLog waits until the sentry's log says a text.
func (p *pod) awaitLog(t *testing.T, text string) {
	t.Helper()
	for end := time.Now().Add(commandTime); !p.logged(t, text); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the sentry's log does not say %q", text)
		}
	}
}

func (p *pod) logged(t *testing.T, text string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(p.logs, "*.boot*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("logs: %v, %v", files, err)
	}
	data, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(data), text)
}

// startPod starts a pod, and waits until both guests have set everything up.
func startPod(t *testing.T, build string) *pod {
	t.Helper()
	p := newPod(t, build, "origin")
	p.start(t)
	p.startApp(t)
	p.ask(t, "wait")
	return p
}

// TestEarlyLoad restores a pod whose second container comes only once the kernel's state is read. Both guests are
// whole, and what is then saved can be restored by the other build.
func TestEarlyLoad(t *testing.T) {
	for _, from := range []string{stock, fast} {
		t.Run("from "+from, func(t *testing.T) {
			origin := startPod(t, from)
			p := newPod(t, fast, "restored")
			p.restore(t, origin.save(t, "none"), "--background")
			p.awaitLog(t, waits)
			p.startApp(t)
			again := p.save(t, "none")
			p.checkAll(t)
			second := newPod(t, other(from), "second")
			second.restore(t, again)
			second.startApp(t)
			second.checkAll(t)
			origin.checkAll(t)
		})
	}
}

// waits is what the sentry says when it has read the kernel's state before all containers have come.
const waits = "The load of the kernel's state waits for containers"

// checkAll has both guests check all that they have set up.
func (p *pod) checkAll(t *testing.T) {
	t.Helper()
	p.check(t)
	p.ask(t, "check")
}

// TestEarlyLoadCompressed has the kernel's state and the pages in one compressed stream.
func TestEarlyLoadCompressed(t *testing.T) {
	origin := startPod(t, stock)
	p := newPod(t, fast, "restored")
	p.restore(t, origin.save(t, "flate-best-speed"))
	p.startApp(t)
	p.checkAll(t)
}

// TestEarlyLoadUnkept restores a pod whose second container has no file for what it had in its root file system. The
// restore fails, and says so.
func TestEarlyLoadUnkept(t *testing.T) {
	image := startPod(t, fast).save(t, "none")
	p := newPod(t, fast, "restored")
	p.restore(t, image)
	p.awaitLog(t, waits)
	p.flags = append(p.flags, "--overlay2=none")
	p.run(t, "create", "--bundle", p.bundle, p.app)
	text, err := p.output(t, "start", p.app)
	if err == nil || !strings.Contains(text, `no container has brought the memory file for "app:/"`) {
		t.Errorf("start: %v\n%s", err, text)
	}
}

// TestEarlyLoadAlone restores a pod whose second container never comes. It can be removed.
func TestEarlyLoadAlone(t *testing.T) {
	image := startPod(t, fast).save(t, "none")
	p := newPod(t, fast, "restored")
	p.restore(t, image)
	p.awaitLog(t, waits)
}

// TestHostileEarlyLoad restores from a kernel's state that was cut off. The last container's start fails, and says so.
func TestHostileEarlyLoad(t *testing.T) {
	image := startPod(t, fast).save(t, "none")
	path := filepath.Join(image, "checkpoint.img")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, info.Size()*2/3); err != nil {
		t.Fatal(err)
	}
	p := newPod(t, fast, "restored")
	p.restore(t, image)
	p.run(t, "create", "--bundle", p.bundle, p.app)
	text, err := p.output(t, "start", p.app)
	if err == nil || !strings.Contains(text, "failed to load kernel") {
		t.Errorf("start: %v\n%s", err, text)
	}
}
