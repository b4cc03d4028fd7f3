package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"diapause.dev/test/bed"
	"diapause.dev/test/workload/answers"
)

// The modes of the benchmark of the pause.
const (
	modeDiapause   = "diapause"
	modeFloor      = "floor"
	modeStockNone  = "stock-none"
	modeStockFlate = "stock-flate"
)

// gapTime is how long a workload may take to notice a gap.
const gapTime = 100 * time.Millisecond

// pauses measures the pause of one pod's checkpoints.
type pauses struct {
	*node
	pod   *bed.Pod
	floor *floor
	disk  string // directory for image files on a disk
	count int    // of checkpoints

	mib   int
	grown int64         // most bytes that the agent has grown by during a checkpoint
	took  time.Duration // the longest checkpoint of the agent
}

func preparePause(ctx context.Context, n *node, mib int) (subject, error) {
	p := &pauses{node: n, mib: mib}
	var err error
	if p.disk, err = os.MkdirTemp("", "image"); err != nil {
		return nil, err
	}
	if p.floor, err = startFloor(ctx); err != nil {
		return nil, err
	}
	if p.pod, err = runWorkload(ctx, n, mib); err != nil {
		return nil, errors.Join(err, p.floor.close())
	}
	return p, nil
}

func (p *pauses) close(ctx context.Context) error {
	if p.took > 0 {
		p.memory = append(p.memory, memoryRow{
			Mode: modeDiapause, MemMiB: p.mib, Agent: inMiB(p.grown), Took: milliseconds(p.took),
		})
		say("pause: %d MiB: a checkpoint took at most %v, and the agent grew by at most %.0f MiB", p.mib,
			p.took.Round(time.Millisecond), inMiB(p.grown))
	}
	return errors.Join(p.floor.close(), p.bed.RemovePod(ctx, p.pod.ID), os.RemoveAll(p.disk))
}

// measure implements subject: the longest gap that the workload saw during a checkpoint.
func (p *pauses) measure(ctx context.Context, mode string) (time.Duration, error) {
	p.count++
	if err := ask(ctx, p.pod, "/gap?reset=1", nil); err != nil {
		return 0, err
	}
	begin := time.Now()
	end, err := p.save(ctx, mode)
	if err != nil {
		return 0, err
	}
	// The workload has to run again to see that it did not.
	if err := sleep(ctx, gapTime); err != nil {
		return 0, err
	}
	var report answers.Gaps
	if err := ask(ctx, p.pod, "/gap", &report); err != nil {
		return 0, err
	}
	return longest(report.Gaps, begin, end)
}

// save makes a checkpoint, and returns when that was over and what it has saved is removed.
func (p *pauses) save(ctx context.Context, mode string) (end time.Time, err error) {
	switch mode {
	case modeDiapause:
		return p.saveByAgent(ctx)
	case modeFloor:
		return p.saveToFloor(ctx)
	case modeStockNone:
		return p.saveStock(filepath.Join(runDir, "image"),
			func(dir string) error { return p.cri.Checkpoint(ctx, p.pod.ID, dir) })
	case modeStockFlate:
		return p.saveStock(filepath.Join(p.disk, "image"), func(dir string) error { return p.saveFlate(ctx, p.pod.ID, dir) })
	}
	return end, fmt.Errorf("no mode %q", mode)
}

func (p *pauses) saveByAgent(ctx context.Context) (end time.Time, err error) {
	name := fmt.Sprintf("pause-%d", p.count)
	before, err := p.bed.AgentMemory()
	if err != nil {
		return end, err
	}
	watching, stop := context.WithCancel(ctx)
	most := make(chan int64, 1)
	go func() { most <- p.watchAgent(watching) }()
	begin := time.Now()
	end, err = p.checkpoint(ctx, p.pod.ID, name)
	stop()
	p.grown = max(p.grown, <-most-before.Held())
	if err != nil {
		return end, err
	}
	p.took = max(p.took, end.Sub(begin))
	return end, p.remove(ctx, name)
}

func (p *pauses) saveToFloor(ctx context.Context) (end time.Time, err error) {
	dir, forget, err := p.floor.expect(fmt.Sprintf("floor-%d", p.count))
	if err != nil {
		return end, err
	}
	defer forget()
	if err := p.cri.Checkpoint(ctx, p.pod.ID, dir); err != nil {
		return end, err
	}
	return time.Now(), p.floor.complete(ctx)
}

// saveStock has save write image files to dir, and removes them.
func (p *pauses) saveStock(dir string, save func(dir string) error) (end time.Time, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return end, err
	}
	err = save(dir)
	end = time.Now()
	return end, errors.Join(err, os.RemoveAll(dir))
}
