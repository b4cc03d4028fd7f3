package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/bench/programs"
	"diapause.dev/test/bed"
	"golang.org/x/sync/errgroup"
)

const (
	// programTime bounds the start of a program with all its data, and one checkpoint with all restores and checks.
	programTime = 10 * time.Minute
	// instantTime is the range from which the time before a checkpoint is drawn.
	instantTime = time.Second
	// twiceEvery says which snapshots are restored twice at once: one of so many.
	twiceEvery = 4
)

// trial is one program under load, which is checkpointed again and again.
type trial struct {
	*pauses
	program *programs.Program
	load    *programs.Load
	digest  string // of the program's data, before the first checkpoint

	paused map[string][]time.Duration // by mode
	before []time.Duration            // before the checkpoints of Diapause
	parts  []parts
	sizes  []*localv1.Snapshot
	woken  []wakeup

	mu   sync.Mutex
	lost int64 // writes that were acknowledged before a pause, and missing in a pod that was restored from its snapshot
}

// startTrial starts a program, gives it its data, and puts load on it.
func startTrial(ctx context.Context, n *node, program *programs.Program) (*trial, error) {
	t := &trial{pauses: &pauses{node: n}, program: program, paused: make(map[string][]time.Duration)}
	if err := t.start(ctx); err != nil {
		return nil, errors.Join(err, t.close(context.WithoutCancel(ctx)))
	}
	return t, nil
}

func (t *trial) start(ctx context.Context) (err error) {
	if err := t.importImage(ctx, t.program); err != nil {
		return err
	}
	if t.floor, err = startFloor(ctx); err != nil {
		return err
	}
	if t.pod, err = t.bed.RunPod(ctx, t.spec(t.program.Name, nil)); err != nil {
		return err
	}
	if err := t.fill(ctx); err != nil {
		return fmt.Errorf("%w\n%s", err, t.output(ctx, t.pod))
	}
	if t.load, err = programs.StartLoad(ctx, t.program, t.pod.IP); err != nil {
		return err
	}
	return sleep(ctx, t.program.Warm)
}

// fill waits for the program's first answer, gives it its data, and notes what that is.
func (t *trial) fill(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, programTime)
	defer cancel()
	if err := bed.Until(ctx, func() error { return t.answers(ctx, t.pod.IP) }); err != nil {
		return fmt.Errorf("wait for the first answer: %w", err)
	}
	if t.program.Fill != nil {
		if err := t.program.Fill(ctx, t.pod.IP); err != nil {
			return fmt.Errorf("fill it: %w", err)
		}
	}
	found, err := t.check(ctx, t.pod.IP)
	t.digest = found.Digest
	return err
}

// spec describes a pod with the program.
func (t *trial) spec(name string, annotations map[string]string) bed.PodSpec {
	return bed.PodSpec{
		Name: name, Namespace: namespace, Annotations: annotations, CPULimit: t.cpuLimit,
		Containers: []bed.Container{{
			Name: "app", Image: t.program.Image.Name, Command: t.program.Command, Env: t.program.Env,
		}},
	}
}

// output returns what the program has written, for an error.
func (t *trial) output(ctx context.Context, pod *bed.Pod) string {
	log, err := t.bed.Logs(ctx, pod.Containers[0].ID)
	if err != nil {
		return err.Error()
	}
	return tail(log)
}

func (t *trial) close(ctx context.Context) error {
	var errs []error
	if t.load != nil {
		errs = append(errs, t.load.Stop())
	}
	if t.floor != nil {
		errs = append(errs, t.floor.close())
	}
	if t.pod != nil {
		errs = append(errs, t.bed.RemovePod(ctx, t.pod.ID))
	}
	return errors.Join(errs...)
}

// answers returns an error unless the program at an address answers.
func (t *trial) answers(ctx context.Context, ip string) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	s, err := t.program.Dial(ctx, ip)
	if err != nil {
		return err
	}
	return errors.Join(s.Ping(ctx), s.Close())
}

// attemptTime bounds one attempt to get an answer.
const attemptTime = 10 * time.Second

// check has the program at an address look at all it has.
func (t *trial) check(ctx context.Context, ip string) (f programs.Found, err error) {
	s, err := t.program.Dial(ctx, ip)
	if err != nil {
		return f, err
	}
	f, err = s.Check(ctx)
	if err == nil && t.digest != "" && f.Digest != t.digest {
		err = fmt.Errorf("its data has the digest %s, and had %s", f.Digest, t.digest)
	}
	return f, errors.Join(err, s.Close())
}

// checkOrigin ends the load, none of whose requests may have failed, and looks at what the origin has: all that was
// written.
func (t *trial) checkOrigin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, programTime)
	defer cancel()
	if err := t.load.Stop(); err != nil {
		return err
	}
	found, err := t.check(ctx, t.pod.IP)
	if err != nil {
		return fmt.Errorf("origin: %w", err)
	}
	if sent := t.load.Sent(); found.Writes != sent {
		return fmt.Errorf("origin: it has the writes %v of %v", found.Writes, sent)
	}
	return nil
}

// pause is what is known of one checkpoint.
type pause struct {
	took        time.Duration // as the client saw it
	before      time.Duration // what the client waited at most in as long a time before
	parts       parts
	least, most [programs.Streams]int64 // writes that its snapshot may have
}

// measure makes one checkpoint at a random instant. Those of round 0 do not count.
func (t *trial) measure(ctx context.Context, mode string, round int) error {
	t.count++
	if err := sleep(ctx, settleTime+rand.N(instantTime)); err != nil {
		return err
	}
	name := fmt.Sprintf("%s-%d", t.program.Name, t.count)
	p, err := t.observe(ctx, func() (time.Time, error) { return t.saveAs(ctx, mode, name) })
	if err != nil {
		return err
	}
	say("%s: %d: %s %.1f ms, before it %.1f: %s", t.program.Name, round, mode, milliseconds(p.took),
		milliseconds(p.before), p.parts)
	if round > 0 {
		t.paused[mode] = append(t.paused[mode], p.took)
	}
	if mode != modeDiapause {
		return nil
	}
	if round > 0 {
		t.parts = append(t.parts, p.parts)
		t.before = append(t.before, p.before)
	}
	return t.restoreAll(ctx, name, round, func(f programs.Found) error { return t.compare(f, p.least, p.most) })
}

// saveAs makes a checkpoint, and returns when it was over. Only that of Diapause stays, under that name.
func (t *trial) saveAs(ctx context.Context, mode, name string) (end time.Time, err error) {
	switch mode {
	case modeDiapause:
		return t.checkpoint(ctx, t.pod.ID, name)
	case modeStock:
		return t.save(ctx, modeStockNone)
	}
	return t.save(ctx, mode)
}

// observe returns what the client and the sentry have seen of a checkpoint that save makes.
func (t *trial) observe(ctx context.Context, save func() (end time.Time, err error)) (p pause, err error) {
	begin := time.Now()
	end, err := save()
	if err != nil {
		return p, err
	}
	if err := t.load.Settle(ctx, end); err != nil {
		return p, err
	}
	if p.parts, err = t.logged(t.pod.ID); err != nil {
		return p, err
	}
	p.least, p.most = t.load.Bounds(p.parts.begin, p.parts.end)
	p.took, p.before = t.load.Pause(begin, end)
	return p, nil
}

// compare looks at what was found in a restored pod. Writes that are missing are counted.
func (t *trial) compare(f programs.Found, least, most [programs.Streams]int64) error {
	var errs []error
	for i, n := range f.Writes {
		if n > most[i] {
			errs = append(errs, fmt.Errorf("stream %d has %d writes, of which %d were sent before the checkpoint ended", i, n,
				most[i]))
		}
		if n < least[i] {
			say("%s: LOST: stream %d has %d writes; %d were acknowledged before the pause", t.program.Name, i, n, least[i])
			t.mu.Lock()
			t.lost += least[i] - n
			t.mu.Unlock()
		}
	}
	return errors.Join(errs...)
}

// restoreAll restores a snapshot, once or twice at once, has each pod checked, and removes all.
func (t *trial) restoreAll(ctx context.Context, snapshot string, round int,
	compare func(programs.Found) error,
) error {
	s, err := t.agent.Inspect(ctx, &localv1.InspectRequest{Namespace: namespace, Snapshot: snapshot})
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	if round > 0 {
		t.sizes = append(t.sizes, s)
	}
	if round%twiceEvery == twiceEvery-1 && !t.program.Large {
		err = t.restoreTwo(ctx, snapshot, compare)
	} else {
		err = t.restoreOne(ctx, snapshot, round, compare)
	}
	return errors.Join(err, t.remove(ctx, snapshot))
}

func (t *trial) restoreOne(ctx context.Context, snapshot string, round int, compare func(programs.Found) error) error {
	w, err := t.restore(ctx, snapshot, "a", compare)
	if err != nil {
		return fmt.Errorf("restore: %w", err)
	}
	say("%s: %d: first answer %s", t.program.Name, round, w)
	if round > 0 {
		t.woken = append(t.woken, w)
	}
	return nil
}

// restoreTwo restores a snapshot twice at once. What they take does not count.
func (t *trial) restoreTwo(ctx context.Context, snapshot string, compare func(programs.Found) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, suffix := range []string{"a", "b"} {
		g.Go(func() error {
			_, err := t.restore(ctx, snapshot, suffix, compare)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("restore of two at once: %w", err)
	}
	return nil
}
