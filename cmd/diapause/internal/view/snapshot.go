package view

import (
	"cmp"
	"time"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/api/snapshot"
)

// Snapshot is one snapshot as printed.
type Snapshot struct {
	Namespace   string     `json:"namespace"`
	Name        string     `json:"name"`
	UID         string     `json:"uid"`
	Created     *time.Time `json:"created"`
	Scope       string     `json:"scope"`   // "whole-pod" or "rootfs-only"
	Purpose     string     `json:"purpose"` // "checkpoint", "termination" or "sleep"
	OriginPod   string     `json:"origin_pod"`
	OriginNode  string     `json:"origin_node"`
	Containers  []string   `json:"containers"`
	RawBytes    int64      `json:"raw_bytes"`
	StoredBytes int64      `json:"stored_bytes"`
	Ratio       float64    `json:"ratio"` // raw to stored; 0: nothing is stored
	Chunks      int64      `json:"chunks"`
	ZeroChunks  int64      `json:"zero_chunks"`
	Packs       int64      `json:"packs"`
	OnNode      bool       `json:"on_node"`
	Replicated  bool       `json:"replicated"`
	Parent      string     `json:"parent,omitempty"`
	Signer      string     `json:"signer"` // fingerprint of the key that has signed it; empty: not signed
	Overflow    int64      `json:"overflow_bytes"`
	Format      int32      `json:"format"`
	Facts       *Facts     `json:"facts,omitempty"`
	Files       []File     `json:"files,omitempty"`
	Timeline    []Stage    `json:"timeline,omitempty"`
	Problem     string     `json:"problem,omitempty"` // why it is not in the store, or that it is damaged on the node
	TotalMS     float64    `json:"total_ms"`          // of the timeline
}

// Facts decide where a snapshot can be restored.
type Facts struct {
	Architecture string   `json:"architecture"`
	RunscVersion string   `json:"runsc_version"`
	RunscDigest  string   `json:"runsc_digest"`
	CPUFeatures  []string `json:"cpu_features"`
	Platform     string   `json:"platform"`
	Network      string   `json:"network"`
	PageSize     int64    `json:"page_size"`
}

// File is one image file.
type File struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	Chunks int64  `json:"chunks"`
}

// Stage is one step of a checkpoint.
type Stage struct {
	Name   string  `json:"name"`
	TookMS float64 `json:"took_ms"`
}

// NewSnapshot converts the agent's description of a snapshot.
func NewSnapshot(s *localv1.Snapshot) Snapshot {
	v := Snapshot{
		Namespace: s.GetNamespace(), Name: s.GetName(), UID: s.GetUid(), Created: timeOf(s.GetCreated()),
		Scope:     cmp.Or(s.GetScope(), snapshot.WholePod.String()),
		Purpose:   cmp.Or(s.GetPurpose(), string(snapshot.ForCheckpoint)),
		OriginPod: s.GetOriginPod(), OriginNode: s.GetOriginNode(), Containers: listOf(s.GetContainers()),
		RawBytes: s.GetRawBytes(), StoredBytes: s.GetStoredBytes(), Ratio: ratio(s.GetRawBytes(), s.GetStoredBytes()),
		Chunks: s.GetChunks(), ZeroChunks: s.GetZeroChunks(), Packs: s.GetPacks(),
		OnNode: s.GetOnNode(), Replicated: s.GetReplicated(), Parent: s.GetParent(), Signer: s.GetSigner(),
		Overflow: s.GetOverflowBytes(), Format: s.GetFormat(), Facts: newFacts(s.GetFacts()), Problem: s.GetProblem(),
	}
	for _, f := range s.GetFiles() {
		v.Files = append(v.Files, File{f.GetName(), f.GetSize(), f.GetChunks()})
	}
	for _, g := range s.GetTimeline() {
		v.Timeline = append(v.Timeline, Stage{g.GetName(), milliseconds(g.GetTook())})
		v.TotalMS += milliseconds(g.GetTook())
	}
	return v
}

func newFacts(f *localv1.Facts) *Facts {
	if f == nil {
		return nil
	}
	return &Facts{
		Architecture: f.GetArchitecture(), RunscVersion: f.GetRunscVersion(), RunscDigest: f.GetRunscDigest(),
		CPUFeatures: listOf(f.GetCpuFeatures()), Platform: f.GetPlatform(), Network: f.GetNetwork(),
		PageSize: f.GetPageSize(),
	}
}

// Key returns "namespace/name".
func (s Snapshot) Key() string { return s.Namespace + "/" + s.Name }

// where says what the snapshot can be restored from.
func (s Snapshot) where() string {
	switch {
	case s.OnNode && s.Replicated:
		return "node, store"
	case s.OnNode:
		return "node"
	case s.Replicated:
		return "store"
	}
	return "-"
}

func ratio(raw, stored int64) float64 {
	if stored <= 0 {
		return 0
	}
	return float64(raw) / float64(stored)
}

// listOf makes an empty list print as [] and not as null.
func listOf(s []string) []string {
	if s == nil {
		return []string{}
	}
	return s
}
