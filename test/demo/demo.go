package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"diapause.dev/test/bed"
	"diapause.dev/test/images"
	"diapause.dev/test/workload/answers"
)

const (
	memoryMiB = 256
	branches  = 2
	origin    = "origin"
	frozen    = "frozen"
)

// demo is the state of one run.
type demo struct {
	*page
	bed *bed.Bed

	origin   endpoint
	pause    answers.Gap
	before   answers.State // of the origin, right before the pause
	after    answers.State // right after it
	load     loadReport
	snapshot inspected
	branches []*branch
	fell     time.Duration // the command by which the origin fell asleep
	woke     time.Duration // the request that woke it
}

// run does the whole of it on a fresh bed.
func run(ctx context.Context, p *page) (err error) {
	d := &demo{page: p}
	d.say("containerd and the agent start")
	if d.bed, err = bed.Start(ctx, bed.Options{}); err != nil {
		return err
	}
	agent, err := d.bed.StartAgent(ctx)
	if err == nil {
		err = d.steps(ctx)
	}
	if err != nil && agent != nil {
		err = fmt.Errorf("%w\n--- log of the agent:\n%s", err, agent.Log())
	}
	if err = errors.Join(err, d.bed.Close(context.WithoutCancel(ctx))); err != nil {
		return err
	}
	d.results()
	return nil
}

func (d *demo) steps(ctx context.Context) error {
	for _, step := range []func(context.Context) error{d.start, d.freeze, d.look, d.restore, d.compare, d.nap} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return nil
}

// start runs the pod and waits for its first answer.
func (d *demo) start(ctx context.Context) error {
	d.say("a gVisor pod runs, with %d MiB of memory that it can check", memoryMiB)
	pod, err := d.bed.RunPod(ctx, bed.PodSpec{Name: origin, Containers: []bed.Container{{
		Name: "app", Image: images.Workload, Command: []string{"/bin/workload", "serve", "--mib", fmt.Sprint(memoryMiB)},
	}}})
	if err != nil {
		return err
	}
	d.origin = endpoint(pod.IP)
	_, err = d.origin.await(ctx)
	return err
}

// freeze checkpoints the pod while requests come in.
func (d *demo) freeze(ctx context.Context) error {
	d.say("it is checkpointed while it serves requests, and runs on")
	if err := d.origin.get(ctx, "/gap?reset=1", nil); err != nil {
		return err
	}
	load := startLoad(ctx, d.origin)
	if !sleep(ctx, 500*time.Millisecond) {
		load.stop()
		return ctx.Err()
	}
	begin := time.Now()
	err := d.diapause(ctx, nil, "checkpoint", "--name", frozen, origin)
	end := time.Now()
	d.load = load.stop()
	if err != nil {
		return err
	}
	if d.load.failed > 0 {
		return fmt.Errorf("%d of %d requests failed during the checkpoint, the first: %w", d.load.failed, d.load.sent,
			d.load.first)
	}
	var gaps answers.Gaps
	if err := d.origin.get(ctx, "/gap", &gaps); err != nil {
		return err
	}
	if d.pause, err = longest(gaps.Gaps, begin, end); err != nil {
		return err
	}
	d.before, d.after, err = d.load.around(d.pause)
	return err
}

// look asks what the snapshot is.
func (d *demo) look(ctx context.Context) error {
	if err := d.inspect(ctx, frozen, &d.snapshot); err != nil {
		return err
	}
	if d.snapshot.RawBytes < memoryMiB<<20 || d.snapshot.StoredBytes <= 0 {
		return fmt.Errorf("snapshot %s has %d bytes, %d stored: too few", frozen, d.snapshot.RawBytes, d.snapshot.StoredBytes)
	}
	return nil
}

// results prints the table and the last line.
func (d *demo) results() {
	slowest := 0.0
	d.title("what it took")
	d.row("pause, as the application saw it", "%.1f ms", d.pause.MS)
	d.row("requests sent meanwhile", "%d, none failed, longest wait %.1f ms", d.load.sent, milliseconds(d.load.longest))
	for _, b := range d.branches {
		slowest = max(slowest, milliseconds(b.took))
		d.row("restored: "+b.name+", command to first answer", "%.0f ms", milliseconds(b.took))
	}
	d.row("asleep, from the command on", "%.0f ms", milliseconds(d.fell))
	d.row("awake, from a request to its answer", "%.0f ms", milliseconds(d.woke))
	d.row("raw size", "%.1f MiB", mib(d.snapshot.RawBytes))
	d.row("stored size", "%.1f MiB (%.2f : 1)", mib(d.snapshot.StoredBytes), d.snapshot.Ratio)
	d.title("timeline of the checkpoint")
	for _, s := range d.snapshot.Timeline {
		d.row(s.Name, "%8.1f ms", s.TookMS)
	}
	d.row("whole", "%8.1f ms", d.snapshot.TotalMS)
	d.last("demo: ok pause_ms=%.1f restore_ms=%.0f wake_ms=%.0f raw_mib=%.1f stored_mib=%.1f",
		d.pause.MS, slowest, milliseconds(d.woke), mib(d.snapshot.RawBytes), mib(d.snapshot.StoredBytes))
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
