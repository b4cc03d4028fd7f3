package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"diapause.dev/test/images"
	"diapause.dev/test/tools"
	"github.com/opencontainers/go-digest"
)

// The results, in the directory of a release.
const (
	imageFile      = "image.tar"
	digestFile     = "digest"
	rootDir        = "root"
	sbomFile       = "sbom.cdx.json"
	provenanceFile = "provenance.json"
	pluginDir      = "plugin"
)

// assemble builds a release from src into out, and returns the image's digest.
func assemble(ctx context.Context, src source, out, builder string, m manifest) (digest.Digest, error) {
	for _, name := range []string{imageFile, digestFile, rootDir, sbomFile, provenanceFile, pluginDir} {
		if err := os.RemoveAll(filepath.Join(out, name)); err != nil {
			return "", err
		}
	}
	bin := tools.Bin{Root: src.dir, Dir: filepath.Join(out, rootDir, images.AgentDir)}
	if err := tools.BuildRelease(ctx, src.dir, src.commit, bin.Dir); err != nil {
		return "", err
	}
	for _, name := range images.Papers() { // for who builds an image from the directory
		data, err := os.ReadFile(filepath.Join(src.dir, name))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(out, rootDir, name), data, 0o644); err != nil {
			return "", err
		}
	}
	if err := writePlugins(ctx, src, filepath.Join(out, pluginDir), m); err != nil {
		return "", err
	}
	image, err := writeImage(filepath.Join(out, imageFile), bin)
	if err != nil {
		return "", err
	}
	return image, writePapers(src, out, builder, image, bin)
}

func writeImage(path string, bin tools.Bin) (_ digest.Digest, err error) {
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return images.WriteRelease(f, bin)
}

// writePapers writes what says where the image comes from and what is in it. Its digest is written last: where there
// is one, all the rest is there.
func writePapers(src source, out, builder string, image digest.Digest, bin tools.Bin) error {
	programs, err := readPrograms(bin)
	if err != nil {
		return err
	}
	bom, err := sbom(src, image, programs)
	if err != nil {
		return err
	}
	statement, err := provenance(src, builder, image, programs, digest.FromBytes(bom))
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(out, sbomFile), bom, 0o644),
		os.WriteFile(filepath.Join(out, provenanceFile), statement, 0o644),
		os.WriteFile(filepath.Join(out, digestFile), []byte(image.String()+"\n"), 0o644),
	)
}

// indent returns a JSON document in one form for people, with its keys in order.
func indent(data []byte) ([]byte, error) {
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return buf.Bytes(), err
}
