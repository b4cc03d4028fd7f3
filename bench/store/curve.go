package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/docker/go-units"

	"diapause.dev/agent/snapshots"
)

// point is one size of chunks: what a first snapshot stores, and what the next one adds when 5 % of
// the pages have been rewritten.
type point struct {
	Chunk string `json:"chunk"` // the size, with its unit
	Full  int64  `json:"full"`  // bytes
	Added int64  `json:"added"` // bytes
	Used  bool   `json:"used"`  // the size that the agent uses
}

func newPoint(chunk int, full, added int64) point {
	name := units.CustomSize("%g %s", float64(chunk), 1024, []string{"B", "KiB", "MiB"})
	return point{name, full, added, chunk == snapshots.ChunkSize}
}

// drawCurve writes bench/chunksize.svg. The program that draws is a module of its own, bench/curve.
func (b *bench) drawCurve(ctx context.Context, points []point) error {
	in, err := json.Marshal(points)
	if err != nil {
		return err
	}
	draw := exec.CommandContext(ctx, "go", "run", ".")
	draw.Dir = filepath.Join(b.root, "bench", "curve")
	draw.Env = append(os.Environ(), "GOFLAGS=-mod=readonly", "GOWORK=off")
	var messages bytes.Buffer
	draw.Stdin, draw.Stderr = bytes.NewReader(in), &messages
	svg, err := draw.Output()
	if err != nil {
		return fmt.Errorf("draw the curve: %w\n%s", err, messages.Bytes())
	}
	return os.WriteFile(filepath.Join(b.root, "bench", "chunksize.svg"), svg, 0o644)
}
