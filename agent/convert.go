package agent

import (
	"errors"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
)

// proto returns the snapshot as the local service tells of it.
func (f *Found) proto() *localv1.Snapshot {
	m, stats := f.Manifest, f.Manifest.Stats()
	s := &localv1.Snapshot{
		Namespace: m.Meta.Namespace, Name: m.Meta.Name, Uid: m.Meta.UID,
		Created:   timestamppb.New(m.Meta.Created),
		OriginPod: m.Meta.Origin.Pod, OriginNode: m.Meta.Origin.Node,
		RawBytes: stats.RawBytes, StoredBytes: stats.StoredBytes,
		Chunks: int64(stats.Chunks), ZeroChunks: int64(stats.ZeroChunks), Packs: int64(stats.Packs),
		OnNode: f.OnNode, Replicated: f.Replicated,
		Facts: factsProto(m.Meta.Facts), OverflowBytes: m.Meta.Overflow, Format: int32(m.Format),
		Scope: m.Meta.Scope.String(), Problem: f.Problem,
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

// problems returns an error's parts, each as a line.
func problems(err error) (lines []string) {
	for _, e := range parts(err) {
		lines = append(lines, e.Error())
	}
	return lines
}

// parts returns the errors that were joined to one, which are a line each.
func parts(err error) (all []error) {
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok || errors.Join(joined.Unwrap()...).Error() != err.Error() {
		return []error{err}
	}
	for _, e := range joined.Unwrap() {
		all = append(all, parts(e)...)
	}
	return all
}

func addSweep(sum *localv1.SweepResult, r storage.SweepResult) {
	sum.Packs += int64(r.Deleted)
	sum.Bytes += r.Bytes
}
