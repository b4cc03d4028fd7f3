package local

import (
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"diapause.dev/agent/snapshots"
	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// foundProto converts a snapshot to the form of the local service.
func foundProto(f *snapshots.Found) *localv1.Snapshot {
	m, stats := f.Manifest, f.Manifest.Stats()
	s := &localv1.Snapshot{
		Namespace: m.Meta.Namespace, Name: m.Meta.Name, Uid: m.Meta.UID,
		Created:   timestamppb.New(m.Meta.Created),
		OriginPod: m.Meta.Origin.Pod, OriginNode: m.Meta.Origin.Node,
		RawBytes: stats.RawBytes, StoredBytes: stats.StoredBytes,
		Chunks: int64(stats.Chunks), ZeroChunks: int64(stats.ZeroChunks), Packs: int64(stats.Packs),
		OnNode: f.OnNode, Replicated: f.Replicated,
		Facts: factsProto(m.Meta.Facts), OverflowBytes: m.Meta.Overflow, Format: int32(m.Format),
		Scope: m.Meta.Scope.String(), Purpose: m.Meta.Purpose.String(), Problem: f.Problem, Signer: m.SignedBy(),
	}
	if m.Meta.Parent != nil {
		s.Parent = m.Meta.Parent.String()
	}
	for _, c := range m.Meta.Pod.Containers {
		s.Containers = append(s.Containers, c.Name)
	}
	for _, file := range m.Files {
		s.Files = append(s.Files, &localv1.ImageFile{Name: file.Name, Size: file.Size, Chunks: int64(len(file.Chunks))})
	}
	for _, st := range f.Timeline {
		s.Timeline = append(s.Timeline, &localv1.Stage{Name: st.Name, Took: durationpb.New(st.Took)})
	}
	return s
}

func factsProto(f snapshot.Facts) *localv1.Facts {
	return &localv1.Facts{
		Architecture: f.Architecture, RunscVersion: f.RunscVersion, RunscDigest: f.RunscDigest,
		CpuFeatures: f.CPUFeatures, Platform: f.Platform, Network: f.Network, PageSize: f.PageSize,
	}
}

func signaturesProto(all []snapshots.Signature) (out []*localv1.Signature) {
	for _, s := range all {
		out = append(out, &localv1.Signature{Store: s.Store, Signer: s.Signer, Refused: s.Refused})
	}
	return out
}

// problems returns each part of an error as one line.
func problems(err error) (lines []string) {
	for _, e := range snapshots.Parts(err) {
		lines = append(lines, e.Error())
	}
	return lines
}

func addSweep(sum *localv1.SweepResult, r storage.SweepResult) {
	sum.Packs += int64(r.Deleted)
	sum.Bytes += r.Bytes
}

// terminalsProto returns terminal settings by the names of their containers.
func terminalsProto(all map[string]*snapshot.Terminal) map[string]*localv1.Terminal {
	out := make(map[string]*localv1.Terminal, len(all))
	for name, t := range all {
		out[name] = &localv1.Terminal{
			Iflag: t.Input, Oflag: t.Output, Cflag: t.Control, Lflag: t.Local, Cc: t.Characters,
			Rows: uint32(t.Rows), Columns: uint32(t.Columns),
		}
	}
	return out
}

// union returns names, followed by the names in codes that are not among them.
func union(names []string, codes map[string]int32) []string {
	all := slices.Clone(names)
	for _, name := range slices.Sorted(maps.Keys(codes)) {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}

// parseKey parses "namespace/name", or a bare name in the given namespace.
func parseKey(s, namespace string) snapshot.Key {
	if ns, name, ok := strings.Cut(s, "/"); ok {
		return snapshot.Key{Namespace: ns, Name: name}
	}
	if namespace == "" {
		namespace = "default"
	}
	return snapshot.Key{Namespace: namespace, Name: s}
}
