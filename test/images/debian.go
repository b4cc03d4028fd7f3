package images

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"diapause.dev/test/tools"
)

// Debian is an image whose root file system is made of Debian's packages. None of their scripts is run.
type Debian struct {
	Name     string            // of the image
	Packages []string          // those that they depend on come along
	Files    map[string][]byte // more files, all of which may be run, by path
	Env      []string
}

// debianRecipe changes with the way in which images are made of packages.
const debianRecipe = "3"

// Archive returns the path of an archive with the image, which it makes below the cache unless it is there.
func (d Debian) Archive(ctx context.Context, cache string) (string, error) {
	debs, err := tools.FindDebs(ctx, filepath.Join(cache, "debs"), d.Packages...)
	if err != nil {
		return "", err
	}
	path := filepath.Join(cache, strings.NewReplacer("/", "-", ":", "-").Replace(d.Name)+"-"+d.key(debs.Key)+".tar")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	fmt.Fprintf(os.Stderr, "images: making %s of Debian's packages\n", d.Name)
	files, err := debs.Fetch(ctx, filepath.Join(cache, "debs"))
	if err != nil {
		return "", err
	}
	part, err := os.MkdirTemp(cache, "part-")
	if err != nil {
		return "", fmt.Errorf("images: %w", err)
	}
	defer os.RemoveAll(part)
	if err := d.unpack(ctx, filepath.Join(part, "root"), files); err != nil {
		return "", err
	}
	if err := d.pack(ctx, part); err != nil {
		return "", err
	}
	return path, os.Rename(filepath.Join(part, "image.tar"), path)
}

// key is a digest of all that the image is made of; debs is that of the packages.
func (d Debian) key(debs string) string {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s %s %q\n", debianRecipe, debs, d.Env)
	for _, name := range slices.Sorted(maps.Keys(d.Files)) {
		fmt.Fprintf(sum, "%s %x\n", name, sha256.Sum256(d.Files[name]))
	}
	return fmt.Sprintf("%x", sum.Sum(nil)[:6])
}

// merged are the directories that Debian's are links of.
var merged = []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"}

// unpack makes the root file system.
func (d Debian) unpack(ctx context.Context, root string, debs []string) error {
	for _, name := range merged {
		if err := os.MkdirAll(filepath.Join(root, "usr", name), 0o755); err != nil {
			return fmt.Errorf("images: %w", err)
		}
		if err := os.Symlink("usr/"+name, filepath.Join(root, name)); err != nil {
			return fmt.Errorf("images: %w", err)
		}
	}
	for _, deb := range debs {
		if err := extract(ctx, deb, root); err != nil {
			return err
		}
	}
	for name, data := range d.files() {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return fmt.Errorf("images: %w", err)
		}
		if err := os.WriteFile(path, data, 0o755); err != nil {
			return fmt.Errorf("images: %w", err)
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "tmp"), 0o755); err != nil {
		return fmt.Errorf("images: %w", err)
	}
	if err := os.Chmod(filepath.Join(root, "tmp"), 0o777|os.ModeSticky); err != nil {
		return fmt.Errorf("images: %w", err)
	}
	return command(ctx, "ldconfig", "-r", root)
}

// files are those of the image that no package has.
func (d Debian) files() map[string][]byte {
	files := maps.Clone(d.Files)
	if files == nil {
		files = map[string][]byte{}
	}
	files["etc/passwd"] = []byte("root:x:0:0:root:/root:/bin/sh\nuser:x:1000:1000:user:/tmp:/bin/sh\n" +
		"www-data:x:33:33:www-data:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")
	files["etc/group"] = []byte("root:x:0:\nuser:x:1000:\nwww-data:x:33:\nadm:x:4:\nnogroup:x:65534:\n")
	files["etc/ld.so.conf"] = []byte("/usr/lib/x86_64-linux-gnu/blas\n/usr/lib/x86_64-linux-gnu/lapack\n")
	return files
}

// extract unpacks a package, without what only people read.
func extract(ctx context.Context, deb, root string) error {
	read := exec.CommandContext(ctx, "dpkg-deb", "--fsys-tarfile", deb)
	write := exec.CommandContext(ctx, "tar", "-x", "--keep-directory-symlink", "--exclude=./usr/share/doc",
		"--exclude=./usr/share/man", "--exclude=./usr/share/locale", "-C", root)
	var err error
	if write.Stdin, err = read.StdoutPipe(); err != nil {
		return fmt.Errorf("images: %w", err)
	}
	if err := read.Start(); err != nil {
		return fmt.Errorf("images: %w", err)
	}
	if out, err := write.CombinedOutput(); err != nil {
		_ = read.Process.Kill()
		_ = read.Wait()
		return fmt.Errorf("images: unpack %s: %w: %s", filepath.Base(deb), err, out)
	}
	if err := read.Wait(); err != nil {
		return fmt.Errorf("images: read %s: %w", filepath.Base(deb), err)
	}
	return nil
}

// pack writes the archive image.tar of the root file system; both are in dir.
func (d Debian) pack(ctx context.Context, dir string) error {
	layer := filepath.Join(dir, "layer.tar")
	err := command(ctx, "tar", "-c", "--sort=name", "--mtime=@0", "--numeric-owner", "-C", filepath.Join(dir, "root"),
		"-f", layer, ".")
	if err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(dir, "root")); err != nil {
		return fmt.Errorf("images: %w", err)
	}
	f, err := os.Create(filepath.Join(dir, "image.tar"))
	if err != nil {
		return fmt.Errorf("images: %w", err)
	}
	defer f.Close()
	a := newArchive(f)
	a.addFile(d.Name, ocispec.ImageConfig{Env: d.Env, WorkingDir: "/"}, layer)
	if err := a.close(); err != nil {
		return err
	}
	return f.Close()
}

// command runs a program to its end.
func command(ctx context.Context, name string, args ...string) error {
	if out, err := exec.CommandContext(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("images: %s: %w: %s", name, err, out)
	}
	return nil
}

// addFile writes an image whose only layer is the uncompressed tar at path.
func (a *archive) addFile(name string, config ocispec.ImageConfig, path string) {
	layer, err := a.blobFile(ocispec.MediaTypeImageLayer, path)
	if err != nil {
		a.fail(err)
		return
	}
	a.addLayers(name, config, []ocispec.Descriptor{layer}, []digest.Digest{layer.Digest})
}

// blobFile writes the content of a file under its digest.
func (a *archive) blobFile(mediaType, path string) (d ocispec.Descriptor, err error) {
	f, err := os.Open(path)
	if err != nil {
		return d, err
	}
	defer f.Close()
	d.MediaType = mediaType
	if d.Digest, err = digest.FromReader(f); err != nil {
		return d, err
	}
	if d.Size, err = f.Seek(0, io.SeekEnd); err != nil {
		return d, err
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return d, err
	}
	a.header("blobs/sha256/"+d.Digest.Encoded(), d.Size)
	if a.err != nil {
		return d, nil
	}
	_, err = io.Copy(a.w, f)
	return d, err
}
