package main

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"github.com/opencontainers/go-digest"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"diapause.dev/test/tools"
)

const (
	predicateType = "https://slsa.dev/provenance/v1"
	// buildType is how a release is built: docs/security/supply-chain.md describes it under this name.
	buildType = "https://diapause.dev/builds/release/v1"
)

// provenance returns the statement of how the image was built. It says nothing of when: another build of the same
// commit by the same builder has the same provenance.
func provenance(
	src source, builder string, image digest.Digest, programs []program, bom digest.Digest,
) ([]byte, error) {
	materials, err := materials(src, programs)
	if err != nil {
		return nil, err
	}
	external, err := structpb.NewStruct(map[string]any{"revision": src.commit, "architecture": runtime.GOARCH})
	if err != nil {
		return nil, err
	}
	byproducts := []*intoto.ResourceDescriptor{described(sbomFile, bom)}
	for _, p := range programs {
		byproducts = append(byproducts, described(p.path, p.digest))
	}
	predicate := &slsa.Provenance{
		BuildDefinition: &slsa.BuildDefinition{
			BuildType: buildType, ExternalParameters: external, ResolvedDependencies: materials,
		},
		RunDetails: &slsa.RunDetails{Builder: &slsa.Builder{Id: builder}, Byproducts: byproducts},
	}
	if err := predicate.Validate(); err != nil {
		return nil, fmt.Errorf("provenance: %w", err)
	}
	return statement(described("diapause-agent", image), predicate)
}

// statement returns the in-toto statement that says the predicate of the subject.
func statement(subject *intoto.ResourceDescriptor, predicate proto.Message) ([]byte, error) {
	data, err := protojson.Marshal(predicate)
	if err != nil {
		return nil, err
	}
	var content structpb.Struct
	if err := protojson.Unmarshal(data, &content); err != nil {
		return nil, err
	}
	s := &intoto.Statement{
		Type: intoto.StatementTypeUri, Subject: []*intoto.ResourceDescriptor{subject},
		PredicateType: predicateType, Predicate: &content,
	}
	if err := s.Validate(); err != nil {
		return nil, fmt.Errorf("provenance: %w", err)
	}
	if data, err = protojson.Marshal(s); err != nil {
		return nil, err
	}
	return indent(data)
}

// materials are what the image was built from: the commit; go.sum, which holds digests of all modules; gVisor, from
// which runsc was built; and Go.
func materials(src source, programs []program) ([]*intoto.ResourceDescriptor, error) {
	sums, err := os.ReadFile(filepath.Join(src.dir, "go.sum"))
	if err != nil {
		return nil, err
	}
	list := []*intoto.ResourceDescriptor{
		{Name: tools.Module, Uri: moduleURL(tools.Module, src.commit), Digest: map[string]string{"gitCommit": src.commit}},
		described("go.sum", digest.FromBytes(sums)),
		{Name: "go", Uri: "pkg:generic/go@" + strings.TrimPrefix(goVersion(programs), "go")},
	}
	for _, p := range programs {
		m := p.module()
		if m.Path == tools.Module || m.Replace != nil { // made from the commit and from what is listed for runsc
			continue
		}
		sum, err := dirHash(m.Sum)
		if err != nil {
			return nil, fmt.Errorf("digest of %s: %w", m.Path, err)
		}
		list = append(list, &intoto.ResourceDescriptor{
			Name: m.Path, Uri: moduleURL(m.Path, m.Version), Digest: map[string]string{"dirHash": sum},
		})
	}
	return list, nil
}

// described names something by a SHA-256 digest.
func described(name string, d digest.Digest) *intoto.ResourceDescriptor {
	return &intoto.ResourceDescriptor{Name: name, Digest: map[string]string{"sha256": d.Encoded()}}
}

// dirHash turns a digest of go.sum into the form of in-toto.
func dirHash(sum string) (string, error) {
	data, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(sum, "h1:"))
	return hex.EncodeToString(data), err
}
