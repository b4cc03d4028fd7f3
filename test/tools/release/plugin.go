package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/go-digest"
	"golang.org/x/mod/semver"
	"sigs.k8s.io/yaml"

	"diapause.dev/test/tools"
)

// platform is a system for which the plugin of kubectl is built.
type platform struct{ os, arch string }

var platforms = []platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "amd64"}, {"darwin", "arm64"}}

// archive returns the name of the archive for the platform.
func (p platform) archive() string { return "kubectl-diapause-" + p.os + "-" + p.arch + ".tar.gz" }

// The files beside the archives.
const (
	sumsFile     = "SHA256SUMS"
	manifestFile = "diapause.yaml"
)

// manifest is what krew is told of the plugin. Without a version and a URI there is no manifest.
type manifest struct{ version, uri string }

var errManifest = errors.New("a manifest for krew needs both --version and --plugin-uri")

// check refuses what krew would.
func (m manifest) check() error {
	if m == (manifest{}) {
		return nil
	}
	if m.version == "" || m.uri == "" {
		return errManifest
	}
	if !semver.IsValid(m.version) || semver.Canonical(m.version) != m.version {
		return fmt.Errorf("--version %q: want a version such as v0.1.0", m.version)
	}
	if u, err := url.Parse(m.uri); err != nil || u.Scheme != "https" || u.Host == "" {
		return fmt.Errorf("--plugin-uri %q: want the https URI of a directory", m.uri)
	}
	return nil
}

// writePlugins builds the plugin of kubectl from src, and writes an archive for each platform, and what is beside them.
func writePlugins(ctx context.Context, src source, dir string, m manifest) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	license, err := os.ReadFile(filepath.Join(src.dir, "LICENSE"))
	if err != nil {
		return err
	}
	var sums strings.Builder
	digests := make(map[platform]string)
	for _, p := range platforms {
		path, err := tools.BuildPlugin(ctx, src.dir, src.commit, p.os, p.arch, dir)
		if err != nil {
			return err
		}
		program, err := os.ReadFile(path)
		if err := errors.Join(err, os.Remove(path)); err != nil {
			return err
		}
		archive, err := pack(program, license)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, p.archive()), archive, 0o644); err != nil {
			return err
		}
		digests[p] = digest.FromBytes(archive).Encoded()
		fmt.Fprintf(&sums, "%s  %s\n", digests[p], p.archive())
	}
	if err := os.WriteFile(filepath.Join(dir, sumsFile), []byte(sums.String()), 0o644); err != nil {
		return err
	}
	if m == (manifest{}) {
		return nil
	}
	text, err := m.text(digests)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, manifestFile), text, 0o644)
}

// pack returns an archive of the plugin and its license, without times.
func pack(program, license []byte) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, f := range []struct {
		name string
		mode int64
		data []byte
	}{{"LICENSE", 0o644, license}, {"kubectl-diapause", 0o755, program}} {
		h := tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.data)), Format: tar.FormatUSTAR}
		if err := w.WriteHeader(&h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.data); err != nil {
			return nil, err
		}
	}
	err := errors.Join(w.Close(), z.Close())
	return b.Bytes(), err
}

// text returns the manifest, in the form of krew's pkg/index.
func (m manifest) text(digests map[platform]string) ([]byte, error) {
	var list []map[string]any
	for _, p := range platforms {
		list = append(list, map[string]any{
			"selector": map[string]any{"matchLabels": map[string]string{"os": p.os, "arch": p.arch}},
			"uri":      strings.TrimSuffix(m.uri, "/") + "/" + p.archive(),
			"sha256":   digests[p],
			"bin":      "kubectl-diapause",
		})
	}
	return yaml.Marshal(map[string]any{
		"apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
		"kind":       "Plugin",
		"metadata":   map[string]string{"name": "diapause"},
		"spec": map[string]any{
			"version":          m.version,
			"homepage":         "https://diapause.dev",
			"shortDescription": "Checkpoint pods, and put them to sleep",
			"description": "Checkpoints pods that run in gVisor, lists and deletes their snapshots,\n" +
				"puts pods to sleep and wakes them. The cluster needs Diapause.\n",
			"platforms": list,
		},
	})
}
