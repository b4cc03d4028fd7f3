package integration

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"diapause.dev/test/images"
	"diapause.dev/test/tools"
)

// importImages gives containerd the images that write writes.
func (n *node) importImages(write func(io.Writer, tools.Bin) error) {
	n.Helper()
	f, err := os.Create(filepath.Join(n.TempDir(), "images.tar"))
	if err == nil {
		err = errors.Join(write(f, n.bed.Bin), f.Close())
	}
	if err == nil {
		err = n.bed.Containerd.Import(n.ctx, f.Name())
	}
	if err != nil {
		n.Fatal(err)
	}
}

// digests finds the digests of images in a message.
var digests = regexp.MustCompile("sha256:[0-9a-f]{64}")

// TestHostileImage: if a tag is moved to another image, a pod with that tag is not restored from a snapshot of the
// former image. With the former one it is.
func TestHostileImage(t *testing.T) {
	n := start(t)
	boot := n.serving(n.workload("origin", "serve", "--mib=1")).Boot
	n.checkpoint("origin", "--name=mine")
	n.importImages(images.WriteMoved)
	_, err := n.tryRestore("mine", "--name=branch")
	if err == nil || !strings.Contains(err.Error(), "container app: the image differs") {
		n.Fatalf("restored with another image: %v", err)
	}
	if d := digests.FindAllString(err.Error(), -1); len(d) < 2 || d[0] == d[1] {
		n.Errorf("the error does not name both images: %v", err)
	}
	if _, err := n.bed.RunPod(n.ctx, fromSnapshot("annotated", "default/mine", "serve", "--mib=1")); err == nil ||
		!strings.Contains(err.Error(), "the image differs") {
		n.Errorf("a pod that asks for it by annotation: %v", err)
	}
	n.importImages(images.Write)
	n.checkWhole(n.restore("mine", "--name=again")[0], boot, 1)
}
