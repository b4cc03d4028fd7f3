package main

import (
	"bytes"
	"cmp"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
	"github.com/opencontainers/go-digest"

	"diapause.dev/test/tools"
)

// sbom returns the bill of materials of the image: its programs, the modules of each, and Go's standard library.
func sbom(src source, image digest.Digest, programs []program) ([]byte, error) {
	bom := cdx.NewBOM()
	bom.SpecVersion = cdx.SpecVersion1_6
	bom.JSONSchema = "http://cyclonedx.org/schema/bom-1.6.schema.json"
	bom.SerialNumber = uuid.NewSHA1(uuid.NameSpaceURL, []byte(image)).URN()
	bom.Metadata = &cdx.Metadata{
		Timestamp: src.time.Format(time.RFC3339),
		Component: &cdx.Component{
			BOMRef: "image", Type: cdx.ComponentTypeContainer, Name: "diapause-agent", Version: src.commit,
			Hashes: sha256Of(image),
		},
	}
	c := contents{src: src, image: cdx.Dependency{Ref: "image", Dependencies: new([]string)}}
	for _, p := range programs {
		c.addProgram(p)
	}
	slices.SortFunc(c.libraries, func(a, b cdx.Component) int { return cmp.Compare(a.BOMRef, b.BOMRef) })
	components := slices.Concat(c.programs, c.libraries)
	dependencies := append([]cdx.Dependency{c.image}, c.dependencies...)
	bom.Components, bom.Dependencies = &components, &dependencies
	return encodeBOM(bom)
}

func encodeBOM(bom *cdx.BOM) ([]byte, error) {
	var buf bytes.Buffer
	if err := cdx.NewBOMEncoder(&buf, cdx.BOMFileFormatJSON).EncodeVersion(bom, bom.SpecVersion); err != nil {
		return nil, err
	}
	return indent(buf.Bytes())
}

// contents collects what an image contains.
type contents struct {
	src          source
	image        cdx.Dependency
	programs     []cdx.Component
	libraries    []cdx.Component
	dependencies []cdx.Dependency
}

func (c *contents) addProgram(p program) {
	m := p.module()
	version := m.Version
	if m.Path == tools.Module {
		version = c.src.commit
	}
	subpath := strings.TrimPrefix(strings.TrimPrefix(p.info.Path, m.Path), "/")
	c.programs = append(c.programs, cdx.Component{
		BOMRef: p.path, Type: cdx.ComponentTypeApplication, Name: p.path, Version: version,
		PackageURL: moduleURL(m.Path, version) + "#" + subpath, Hashes: sha256Of(p.digest), Pedigree: pedigree(m),
	})
	*c.image.Dependencies = append(*c.image.Dependencies, p.path)
	refs := []string{c.addLibrary("stdlib", strings.TrimPrefix(p.info.GoVersion, "go"), "")}
	for _, m := range p.modules() {
		refs = append(refs, c.addModule(m))
	}
	slices.Sort(refs)
	c.dependencies = append(c.dependencies, cdx.Dependency{Ref: p.path, Dependencies: &refs})
}

// pedigree says of a program whether its module was changed.
func pedigree(m debug.Module) *cdx.Pedigree {
	if m.Replace == nil {
		return nil
	}
	return &cdx.Pedigree{Notes: "built from this version with the changes in runsc/fast of " + tools.Module}
}

func (c *contents) addModule(m debug.Module) string { return c.addLibrary(m.Path, m.Version, m.Sum) }

// addLibrary adds a library, once, and returns its reference. The sum is that of go.sum: a digest of a list of the
// module's files, so it is no hash of the component in the sense of CycloneDX.
func (c *contents) addLibrary(name, version, sum string) string {
	ref := moduleURL(name, version)
	if slices.ContainsFunc(c.libraries, func(l cdx.Component) bool { return l.BOMRef == ref }) {
		return ref
	}
	l := cdx.Component{BOMRef: ref, Type: cdx.ComponentTypeLibrary, Name: name, Version: version, PackageURL: ref}
	if sum != "" {
		l.Properties = &[]cdx.Property{{Name: "diapause:go.sum", Value: sum}}
	}
	c.libraries = append(c.libraries, l)
	return ref
}

func sha256Of(d digest.Digest) *[]cdx.Hash {
	return &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: d.Encoded()}}
}
