// Package images assembles the container images of the tests without a
// registry: one OCI archive with a few small images, which containerd imports.
// The same programs give the same archive, byte for byte.
package images

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"diapause.dev/test/tools"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// The names of the images.
const (
	// Pause holds only the first process of a pod.
	Pause = "localhost/pause:1"
	// Busybox holds a static busybox under all its names.
	Busybox = "localhost/busybox:1"
	// Workload is Busybox with /bin/workload, the test workload, and /bin/probed, which is probed by HTTPS and gRPC.
	Workload = "localhost/workload:1"
	// Agent is the image that the manifests name: the agent with all that it installs on a node.
	Agent = "localhost/diapause-agent:1"
)

// Write writes an archive with all images to w, made from the programs in bin
// and the machine's static busybox.
func Write(w io.Writer, bin tools.Bin) error {
	pause, err := file("pause", filepath.Join(bin.Path("image"), "pause"))
	if err != nil {
		return err
	}
	workload, err := file("bin/workload", filepath.Join(bin.Path("image"), "workload"))
	if err != nil {
		return err
	}
	probed, err := file("bin/probed", filepath.Join(bin.Path("image"), "probed"))
	if err != nil {
		return err
	}
	busybox, err := busyboxTree()
	if err != nil {
		return err
	}
	a := newArchive(w)
	a.add(Pause, ocispec.ImageConfig{Cmd: []string{"/pause"}}, tree{pause})
	a.add(Busybox, shellConfig("/bin/sh"), busybox)
	a.add(Workload, shellConfig("/bin/workload"), busybox, tree{dir("bin", 0o755), workload, probed})
	return a.close()
}

// WriteMoved writes an archive with another image under the name [Workload], which does the same.
func WriteMoved(w io.Writer, bin tools.Bin) error {
	workload, err := file("bin/workload", filepath.Join(bin.Path("image"), "workload"))
	if err != nil {
		return err
	}
	busybox, err := busyboxTree()
	if err != nil {
		return err
	}
	a := newArchive(w)
	a.add(Workload, shellConfig("/bin/workload"), busybox, tree{
		dir("bin", 0o755), workload, dir("etc", 0o755), text("etc/moved", "another image\n"),
	})
	return a.close()
}

// AgentDir is the directory of the image [Agent] that holds its programs.
const AgentDir = "usr/local/bin"

// WriteAgent writes an archive with the image [Agent] to w, made from the programs in bin. It holds what the
// release's image holds, and nothing else. Its layers are not compressed, since no node pulls it.
func WriteAgent(w io.Writer, bin tools.Bin) error {
	return WriteAgentAs(w, Agent, bin, nil)
}

// WriteAgentAs is WriteAgent for an image of another name, in which the programs that instead names
// are the files at its paths.
func WriteAgentAs(w io.Writer, image string, bin tools.Bin, instead map[string]string) error {
	_, err := writeAgent(newArchive(w), image, bin, instead)
	return err
}

// WriteRelease is WriteAgent with compressed layers. It returns the image's digest: that of its manifest, which the
// registry names the image by. The image's name in the archive is no part of it.
func WriteRelease(w io.Writer, bin tools.Bin) (digest.Digest, error) {
	a := newArchive(w)
	a.gzip = true
	return writeAgent(a, Agent, bin, nil)
}

// Papers are the files of this module's directory that licenses ask for in each image of its programs.
func Papers() []string { return []string{"LICENSE", "NOTICE", "THIRD_PARTY_LICENSES"} }

func writeAgent(a *archive, image string, bin tools.Bin, instead map[string]string) (digest.Digest, error) {
	t := tree{dir("usr", 0o755), dir("usr/local", 0o755), dir(AgentDir, 0o755), dir(AgentDir+"/gvisor-bin", 0o755)}
	for _, name := range tools.ReleasePrograms() {
		program, err := file(AgentDir+"/"+name, cmp.Or(instead[name], bin.Path(name)))
		if err != nil {
			return "", err
		}
		t = append(t, program)
	}
	for _, name := range Papers() {
		data, err := os.ReadFile(filepath.Join(bin.Root, name))
		if err != nil {
			return "", fmt.Errorf("images: %w", err)
		}
		t = append(t, text(name, string(data)))
	}
	d := a.add(image, ocispec.ImageConfig{Entrypoint: []string{"/" + AgentDir + "/diapause-agent"}, WorkingDir: "/"}, t)
	return d, a.close()
}

func shellConfig(cmd ...string) ocispec.ImageConfig {
	return ocispec.ImageConfig{Env: []string{"PATH=/bin:/usr/bin:/sbin:/usr/sbin"}, Cmd: cmd, WorkingDir: "/"}
}

// busyboxTree is a small root file system around busybox.
func busyboxTree() (tree, error) {
	out, err := exec.Command(tools.Busybox, "--list").Output()
	if err != nil {
		return nil, fmt.Errorf("images: list the applets of %s: %w", tools.Busybox, err)
	}
	busybox, err := file("bin/busybox", tools.Busybox)
	if err != nil {
		return nil, err
	}
	t := tree{
		dir("bin", 0o755), dir("dev", 0o755), dir("etc", 0o755), dir("proc", 0o755), dir("root", 0o700),
		dir("sbin", 0o755), dir("sys", 0o755), dir("tmp", 0o777|sticky), dir("usr", 0o755), dir("usr/bin", 0o755),
		text("etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"),
		text("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
		busybox,
	}
	for _, applet := range strings.Fields(string(out)) {
		if applet != "busybox" {
			t = append(t, symlink("bin/"+applet, "busybox"))
		}
	}
	return t, nil
}

// platform is the one that all images are for: this machine's.
func platform() ocispec.Platform { return ocispec.Platform{OS: "linux", Architecture: runtime.GOARCH} }
