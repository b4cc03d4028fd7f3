package spool

import (
	"context"
	"errors"

	"diapause.dev/agent/checkpoint/room"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc"
	"diapause.dev/runsc/capture"
)

// Prepare makes the arena, into which the sandbox is captured. It prepares that, and the memory that the sandbox has
// allocated so far, for copies without page faults. With RootfsOnly the arena is small: files are elsewhere, and only
// the sentry, which is process sandboxPID, knows their size. The snapshot's writer lives as long as life.
func (s *Snapshot) Prepare(ctx, life context.Context, sandboxPID int) (*capture.Arena, error) {
	if s.Scope == snapshot.RootfsOnly {
		return s.newArena(room.Slack, nil, nil)
	}
	memory, err := runsc.MemoryFile(sandboxPID)
	if err != nil {
		return nil, err
	}
	defer memory.Close()
	used, err := runsc.MemoryUsage(sandboxPID)
	if err != nil {
		return nil, err
	}
	s.Progress("prepare", 0, used)
	mapping, err := capture.Map(memory)
	if err != nil {
		return nil, err
	}
	left, stored, err := s.precopy(ctx, life, mapping, memory, used)
	if err != nil {
		return nil, errors.Join(err, mapping.Close())
	}
	a, err := s.newArena(left+room.Slack, mapping, stored)
	if err != nil {
		return nil, err
	}
	s.Progress("prepare", used, used)
	return a, nil
}

// newArena makes the arena, with room for the first bytes without page faults. It owns mapping. Stored is what is
// stored already, or nil.
func (s *Snapshot) newArena(warm int64, mapping *capture.Mapping, stored *capture.Baseline) (*capture.Arena, error) {
	return capture.NewArena(capture.ArenaOptions{
		Limit: s.Room.Arena(), Warm: warm, Dir: s.Stores.SpoolDir(), Encrypt: s.Stores.Encrypted(),
		Most: s.Room.MostPages(), Mapping: mapping, Baseline: stored,
	})
}
