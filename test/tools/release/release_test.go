package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"diapause.dev/test/images"
	"diapause.dev/test/pages"
	"diapause.dev/test/tools"
)

// repository is the root of the sources, seen from here.
const repository = "../../.."

// commit stands for the commit of the sources, which a test may have changed.
const commit = "0123456789abcdef0123456789abcdef01234567"

// TestRelease builds a release from the sources here, and one from a copy of them elsewhere, all of whose files are
// compiled anew. Everything in the two must be the same, byte for byte. It looks at the first one's contents, too.
func TestRelease(t *testing.T) {
	here, err := filepath.Abs(repository)
	must(t, err)
	copied := filepath.Join(t.TempDir(), "elsewhere")
	copySources(t, here, copied)
	first, second := t.TempDir(), t.TempDir()
	image := assembled(t, here, first)
	if again := assembled(t, copied, second); again != image {
		t.Errorf("the image's digest is %s, and %s if it is built elsewhere", image, again)
	}
	sameFiles(t, first, second)
	t.Run("image", func(t *testing.T) { checkImage(t, first, image) })
	t.Run("version", func(t *testing.T) { checkVersion(t, first) })
	t.Run("bill of materials", func(t *testing.T) { checkSBOM(t, first, image) })
	t.Run("provenance", func(t *testing.T) { checkProvenance(t, first, image) })
	t.Run("plugin", func(t *testing.T) { checkPlugin(t, first) })
	t.Run("node", func(t *testing.T) { checkNode(t, first) })
}

// checkNode installs a release on a node as the page says, in another directory than /usr/local/bin.
func checkNode(t *testing.T, dir string) {
	from, to := filepath.Join(dir, rootDir, images.AgentDir), t.TempDir()
	script := pages.Text(t, repository, "docs/install/node.md", "make release\n", "make release\n", "",
		".cache/release/root/usr/local/bin", from, " /usr/local/bin/", " "+to+"/")
	if out, err := exec.CommandContext(t.Context(), "bash", "-euc", script).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, script, out)
	}
	for _, name := range tools.ReleasePrograms() {
		of := name
		switch name {
		case tools.RunscFast:
			continue
		case "runsc":
			of = tools.RunscFast
		}
		if !bytes.Equal(read(t, to, name), read(t, from, of)) {
			t.Errorf("%s is not %s of the release", name, of)
		}
	}
}

// assembled makes a release from src in out, which it names as the Makefile does: from the working directory.
func assembled(t *testing.T, src, out string) digest.Digest {
	t.Helper()
	here, err := os.Getwd()
	must(t, err)
	out, err = filepath.Rel(here, out)
	must(t, err)
	made := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	start := time.Now()
	d, err := assemble(t.Context(), source{dir: src, commit: commit, time: made}, out, localBuilder, someManifest)
	must(t, err)
	t.Logf("built from %s in %s", src, time.Since(start).Round(time.Second))
	return d
}

// copySources copies the module at from. To every file of Go it adds a comment at the end that no other run of this
// test adds. So the go command finds no package of this module in its cache, and compiles it again; nothing that it
// compiles may depend on that comment.
func copySources(t *testing.T, from, to string) {
	t.Helper()
	comment := fmt.Sprintf("\n// compiled anew at %d\n", time.Now().UnixNano())
	must(t, filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the temporary file of another test
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch {
		case d.IsDir() && (rel == ".git" || rel == ".cache" || rel == "bench/out"):
			return fs.SkipDir
		case d.IsDir():
			return os.Mkdir(filepath.Join(to, rel), 0o755)
		case d.Type().IsRegular():
			return copySource(path, filepath.Join(to, rel), comment)
		}
		return nil
	}))
}

// copySource copies a file, and adds a comment if it is one of Go.
func copySource(from, to, comment string) error {
	data, err := os.ReadFile(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if strings.HasSuffix(from, ".go") {
		data = append(data, comment...)
	}
	return os.WriteFile(to, data, 0o644)
}

// sameFiles compares all files of two directories.
func sameFiles(t *testing.T, a, b string) {
	t.Helper()
	in, other := digests(t, a), digests(t, b)
	for name, d := range in {
		if other[name] != d {
			t.Errorf("%s is not the same: %s and %s", name, d, other[name])
		}
	}
	if len(in) != len(other) {
		t.Errorf("there are %d files, and then %d", len(in), len(other))
	}
}

// digests returns the digests of the files below dir, with their modes.
func digests(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, dir+"/")] = info.Mode().String() + " " + digest.FromBytes(data).String()
		return err
	}))
	return all
}

// checkVersion has the programs say what they were built from.
func checkVersion(t *testing.T, dir string) {
	for _, args := range [][]string{{"diapause", "version"}, {"diapause-agent", "--version"}} {
		out, _ := exec.Command(filepath.Join(dir, rootDir, images.AgentDir, args[0]), args[1:]...).Output()
		if !strings.Contains(string(out), commit) {
			t.Errorf("%s says %q, want %s", args, out, commit)
		}
	}
}

// checkImage reads the image back: its digest is the one that was returned and written, and its files are those
// from which the Dockerfile makes an image, which has the same configuration.
func checkImage(t *testing.T, dir string, image digest.Digest) {
	if got := string(read(t, dir, digestFile)); got != image.String()+"\n" {
		t.Errorf("the file %s says %q, want %s", digestFile, got, image)
	}
	archive := unpack(t, read(t, dir, imageFile), func(h *tar.Header) string { return h.Name })
	var index ocispec.Index
	parse(t, archive[ocispec.ImageIndexFile], &index)
	if len(index.Manifests) != 1 || index.Manifests[0].Digest != image {
		t.Fatalf("the archive's index is %+v, want one image %s", index.Manifests, image)
	}
	var manifest ocispec.Manifest
	parse(t, blob(t, archive, image), &manifest)
	var config ocispec.Image
	parse(t, blob(t, archive, manifest.Config.Digest), &config)
	checkDockerfile(t, config.Config)
	if len(manifest.Layers) != 1 {
		t.Fatalf("the image has %d layers, want 1", len(manifest.Layers))
	}
	inside := map[string]string{}
	layer := gunzip(t, blob(t, archive, manifest.Layers[0].Digest))
	if got := digest.FromBytes(layer); got != config.RootFS.DiffIDs[0] {
		t.Errorf("the layer is %s, and %s in the configuration", got, config.RootFS.DiffIDs[0])
	}
	for name, data := range unpack(t, layer, modeAndName) {
		mode, path, _ := strings.Cut(name, " ")
		inside[path] = mode + " " + digest.FromBytes(data).String()
	}
	for name, d := range digests(t, filepath.Join(dir, rootDir)) {
		if inside[name] != d {
			t.Errorf("%s is %q in the image, and %q in %s", name, inside[name], d, rootDir)
		}
		delete(inside, name)
	}
	if len(inside) > 0 {
		t.Errorf("the image has files that are not in %s: %v", rootDir, inside)
	}
}

// checkDockerfile compares the Dockerfile's instructions with the image's configuration. It takes a whole directory,
// and no base.
func checkDockerfile(t *testing.T, config ocispec.ImageConfig) {
	t.Helper()
	entrypoint, err := json.Marshal(config.Entrypoint)
	must(t, err)
	want := []string{"FROM scratch", "COPY . /", "WORKDIR " + config.WorkingDir, "ENTRYPOINT " + string(entrypoint)}
	var got []string
	for line := range strings.Lines(string(read(t, repository, "Dockerfile"))) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			got = append(got, line)
		}
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the Dockerfile says %q, want %q", got, want)
	}
}

// checkSBOM compares the bill of materials with what "go version -m" says of each program.
func checkSBOM(t *testing.T, dir string, image digest.Digest) {
	var bom cdx.BOM
	must(t, cdx.NewBOMDecoder(bytes.NewReader(read(t, dir, sbomFile)), cdx.BOMFileFormatJSON).Decode(&bom))
	if got := (*bom.Metadata.Component.Hashes)[0].Value; got != image.Encoded() {
		t.Errorf("it is of the image %s, want %s", got, image)
	}
	components := map[string]cdx.Component{}
	for _, c := range *bom.Components {
		components[c.BOMRef] = c
	}
	parts := map[string][]string{}
	for _, d := range *bom.Dependencies {
		parts[d.Ref] = *d.Dependencies
	}
	if n := len(tools.ReleasePrograms()); len(parts["image"]) != n {
		t.Errorf("the image has the parts %q, want %d programs", parts["image"], n)
	}
	for _, name := range tools.ReleasePrograms() {
		path := filepath.Join(images.AgentDir, name)
		program := filepath.Join(dir, rootDir, path)
		if got, want := (*components[path].Hashes)[0].Value, digest.FromBytes(read(t, program)).Encoded(); got != want {
			t.Errorf("%s has the digest %s, want %s", path, got, want)
		}
		checkModules(t, program, parts[path], components)
	}
}

// checkModules compares the modules of a program with what "go version -m" prints.
func checkModules(t *testing.T, program string, refs []string, components map[string]cdx.Component) {
	t.Helper()
	named := map[string]bool{}
	for _, ref := range refs {
		c := components[ref]
		sum := ""
		if c.Properties != nil {
			sum = (*c.Properties)[0].Value
		}
		named[c.Name+" "+c.Version+" "+sum] = true
	}
	out, err := command(t.Context(), ".", "go", "version", "-m", program)
	must(t, err)
	_, version, _ := strings.Cut(strings.SplitN(out, "\n", 2)[0], ": go")
	want := map[string]bool{"stdlib " + version + " ": true}
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 4 && f[0] == "dep" {
			want[strings.Join(f[1:], " ")] = true
		}
	}
	for m := range want {
		if !named[m] {
			t.Errorf("%s has the module %s, which is not in the bill of materials", program, m)
		}
	}
	if len(named) != len(want) || len(want) < 2 {
		t.Errorf("%s has %d modules, and %d in the bill of materials", program, len(want), len(named))
	}
}

// checkProvenance reads the provenance as somebody would who checks the image.
func checkProvenance(t *testing.T, dir string, image digest.Digest) {
	type resource struct {
		Name, URI string
		Digest    map[string]string
	}
	var s struct {
		Type          string `json:"_type"`
		PredicateType string
		Subject       []resource
		Predicate     struct {
			BuildDefinition struct {
				BuildType            string
				ExternalParameters   map[string]string
				ResolvedDependencies []resource
			}
			RunDetails struct {
				Builder    struct{ ID string }
				Byproducts []resource
			}
		}
	}
	parse(t, read(t, dir, provenanceFile), &s)
	if s.Type != "https://in-toto.io/Statement/v1" || s.PredicateType != "https://slsa.dev/provenance/v1" {
		t.Errorf("it is a %s with a %s", s.Type, s.PredicateType)
	}
	if len(s.Subject) != 1 || s.Subject[0].Digest["sha256"] != image.Encoded() {
		t.Errorf("its subject is %v, want %s", s.Subject, image)
	}
	build, run := s.Predicate.BuildDefinition, s.Predicate.RunDetails
	if build.BuildType != buildType || build.ExternalParameters["revision"] != commit || run.Builder.ID != localBuilder {
		t.Errorf("it was built by %v, of %v", run.Builder, build)
	}
	materials, byproducts := map[string]map[string]string{}, map[string]map[string]string{}
	for _, r := range build.ResolvedDependencies {
		materials[r.Name] = r.Digest
	}
	for _, r := range run.Byproducts {
		byproducts[r.Name] = r.Digest
	}
	sums := read(t, repository, "go.sum")
	runsc := read(t, dir, rootDir, images.AgentDir, "runsc")
	for name, pair := range map[string][2]string{
		"the commit":        {materials[tools.Module]["gitCommit"], commit},
		"go.sum":            {materials["go.sum"]["sha256"], digest.FromBytes(sums).Encoded()},
		"gVisor's module":   {materials["gvisor.dev/gvisor"]["dirHash"], sumOf(t, sums)},
		"runsc":             {byproducts[images.AgentDir+"/runsc"]["sha256"], digest.FromBytes(runsc).Encoded()},
		"bill of materials": {byproducts[sbomFile]["sha256"], digest.FromBytes(read(t, dir, sbomFile)).Encoded()},
	} {
		if pair[0] != pair[1] || pair[0] == "" {
			t.Errorf("the digest of %s is %q, want %q", name, pair[0], pair[1])
		}
	}
}

// sumOf returns the digest of gVisor's module that go.sum has, in hexadecimal.
func sumOf(t *testing.T, sums []byte) string {
	t.Helper()
	out, err := command(t.Context(), repository, "go", "list", "-m", "-f", "{{.Path}} {{.Version}} ", "gvisor.dev/gvisor")
	must(t, err)
	for line := range strings.Lines(string(sums)) {
		if sum, ok := strings.CutPrefix(line, strings.TrimRight(out, "\n")); ok {
			hash, err := dirHash(strings.TrimSpace(sum))
			must(t, err)
			return hash
		}
	}
	t.Fatalf("go.sum has no digest of %s", out)
	return ""
}

// TestCheckout: a release has what is committed, wherever in the repository it is asked for, and nothing else.
func TestCheckout(t *testing.T) {
	repo := t.TempDir()
	git := func(args ...string) {
		t.Helper()
		_, err := command(t.Context(), repo, "git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
		must(t, err)
	}
	git("init", "--quiet")
	must(t, os.Mkdir(filepath.Join(repo, "sub"), 0o755))
	must(t, os.WriteFile(filepath.Join(repo, "file"), []byte("committed"), 0o644))
	git("add", "file")
	t.Setenv("GIT_COMMITTER_DATE", "2026-01-02T03:04:05+02:00")
	git("commit", "--quiet", "--message=first")
	must(t, os.WriteFile(filepath.Join(repo, "file"), []byte("changed"), 0o644))

	src, err := checkout(t.Context(), filepath.Join(repo, "sub"), "HEAD", filepath.Join(t.TempDir(), "src"))
	must(t, err)
	if got := string(read(t, src.dir, "file")); got != "committed" {
		t.Errorf("the file is %q, want what was committed", got)
	}
	if want := "2026-01-02T01:04:05Z"; src.time.Format(time.RFC3339) != want || len(src.commit) != 40 {
		t.Errorf("the commit is %q of %s, want one of %s", src.commit, src.time, want)
	}
	if _, err := checkout(t.Context(), repo, "no-such-revision", filepath.Join(t.TempDir(), "src")); err == nil {
		t.Error("a revision that does not exist was checked out")
	}
}

// TestToolchain: a release is built with the version of Go that go.mod names.
func TestToolchain(t *testing.T) {
	t.Setenv("GOTOOLCHAIN", "")
	must(t, pinToolchain(repository))
	if got := os.Getenv("GOTOOLCHAIN"); !strings.HasPrefix(got, "go1.") {
		t.Errorf("GOTOOLCHAIN is %q", got)
	}
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module m\n"), 0o644))
	if err := pinToolchain(dir); err == nil {
		t.Error("a go.mod without a toolchain was taken")
	}
}

// TestInterrupted: a release that is cut short leaves no digest of the former one.
func TestInterrupted(t *testing.T) {
	out := t.TempDir()
	must(t, os.WriteFile(filepath.Join(out, digestFile), []byte("former"), 0o644))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := assemble(ctx, source{dir: repository}, out, localBuilder, manifest{}); err == nil {
		t.Error("a release that was cut short reports success")
	}
	if _, err := os.Stat(filepath.Join(out, digestFile)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the former digest is still there: %v", err)
	}
}

func modeAndName(h *tar.Header) string { return h.FileInfo().Mode().String() + " " + h.Name }

// unpack returns the regular files of a tar, by the name that the function gives each.
func unpack(t *testing.T, archive []byte, name func(*tar.Header) string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must(t, err)
		if h.Typeflag != tar.TypeReg {
			continue
		}
		files[name(h)], err = io.ReadAll(r)
		must(t, err)
	}
}

func gunzip(t *testing.T, data []byte) []byte {
	t.Helper()
	r, err := gzip.NewReader(bytes.NewReader(data))
	must(t, err)
	data, err = io.ReadAll(r)
	must(t, err)
	return data
}

func blob(t *testing.T, archive map[string][]byte, d digest.Digest) []byte {
	t.Helper()
	data := archive["blobs/sha256/"+d.Encoded()]
	if digest.FromBytes(data) != d {
		t.Fatalf("the blob %s has the digest %s", d, digest.FromBytes(data))
	}
	return data
}

func read(t *testing.T, path ...string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(path...))
	must(t, err)
	return data
}

func parse(t *testing.T, data []byte, v any) {
	t.Helper()
	must(t, json.Unmarshal(data, v))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// someManifest is that of the tests' releases.
var someManifest = manifest{version: "v0.1.0", uri: "https://example.com/releases/v0.1.0/"}

// checkPlugin looks at the archives of the plugin, and runs that of this machine.
func checkPlugin(t *testing.T, dir string) {
	sums := string(read(t, dir, pluginDir, sumsFile))
	text := string(read(t, dir, pluginDir, manifestFile))
	for _, p := range platforms {
		archive := read(t, dir, pluginDir, p.archive())
		sum := digest.FromBytes(archive).Encoded()
		if !strings.Contains(sums, sum+"  "+p.archive()+"\n") || !strings.Contains(text, sum) ||
			!strings.Contains(text, "https://example.com/releases/v0.1.0/"+p.archive()) {
			t.Errorf("%s, with the digest %s, is not named in\n%s\n%s", p.archive(), sum, sums, text)
		}
		files := unpack(t, gunzip(t, archive), func(h *tar.Header) string { return h.Name })
		if len(files) != 2 || len(files["LICENSE"]) == 0 {
			t.Errorf("%s has %d files", p.archive(), len(files))
		}
		if p.os != runtime.GOOS || p.arch != runtime.GOARCH {
			continue
		}
		program := filepath.Join(t.TempDir(), "kubectl-diapause")
		must(t, os.WriteFile(program, files["kubectl-diapause"], 0o755))
		if out, err := exec.Command(program, "version").Output(); err != nil || !strings.Contains(string(out), commit) {
			t.Errorf("the plugin says that it is %q, %v", out, err)
		}
	}
}

// TestManifest: what krew would refuse is refused before anything is built.
func TestManifest(t *testing.T) {
	for m, good := range map[manifest]bool{
		{}:                               true,
		someManifest:                     true,
		{"v0.1.0", ""}:                   false,
		{"", "https://example.com"}:      false,
		{"0.1.0", "https://example.com"}: false,
		{"v0.1", "https://example.com"}:  false,
		{"v0.1.0", "http://example.com"}: false,
		{"v0.1.0", "https:///nobody"}:    false,
	} {
		if err := m.check(); (err == nil) != good {
			t.Errorf("%+v: %v", m, err)
		}
	}
}
