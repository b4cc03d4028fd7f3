package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"diapause.dev/bench/programs"
	"diapause.dev/test/bed"
)

// wakeup is the time from the request for a pod that is restored to the first answer of its program, in parts that
// follow each other.
type wakeup struct {
	sandbox time.Duration // RunPodSandbox
	start   time.Duration // CreateContainer and StartContainer, in which the kernel's state is loaded
	answer  time.Duration // from then to the first answer
	kernel  time.Duration // the part of start in which the sentry loads the kernel's state, by its log
}

func (w wakeup) whole() time.Duration { return w.sandbox + w.start + w.answer }

func (w wakeup) String() string {
	return fmt.Sprintf("%.1f ms: sandbox %.1f, start %.1f (of which kernel state %.1f), answer %.1f",
		milliseconds(w.whole()), milliseconds(w.sandbox), milliseconds(w.start), milliseconds(w.kernel),
		milliseconds(w.answer))
}

// restore starts a pod from a snapshot, has compare look at what it has, writes to it once more, and removes it.
func (t *trial) restore(ctx context.Context, snapshot, suffix string,
	compare func(programs.Found) error,
) (w wakeup, err error) {
	spec := t.spec(snapshot+"-"+suffix, restoreFrom(snapshot))
	begin := time.Now()
	made, err := t.bed.RunSandbox(ctx, spec)
	if err != nil {
		return w, err
	}
	defer func() { err = errors.Join(err, t.bed.RemovePod(context.WithoutCancel(ctx), made.ID)) }()
	w.sandbox = time.Since(begin)
	if err := t.bed.StartContainer(ctx, made, spec, spec.Containers[0]); err != nil {
		return w, err
	}
	w.start = time.Since(begin) - w.sandbox
	pod, err := t.bed.Pod(ctx, made.ID) // with its address
	if err != nil {
		return w, err
	}
	if err := t.firstAnswer(ctx, pod); err != nil {
		return w, err
	}
	w.answer = time.Since(begin) - w.sandbox - w.start
	if w.kernel, err = kernelLoad(pod.ID); err != nil {
		return w, err
	}
	return w, t.look(ctx, pod, compare)
}

// firstAnswer returns once the program in a restored pod has answered.
func (t *trial) firstAnswer(ctx context.Context, pod *bed.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, programTime)
	defer cancel()
	for {
		err := t.answers(ctx, pod.IP)
		if err == nil {
			return nil
		}
		if sleep(ctx, retryPause) != nil {
			return fmt.Errorf("first answer: %w: %w\n%s", context.Cause(ctx), err, t.output(ctx, pod))
		}
	}
}

// look checks what a restored pod has, and that it goes on: one more write on each stream.
func (t *trial) look(ctx context.Context, pod *bed.Pod, compare func(programs.Found) error) error {
	found, err := t.check(ctx, pod.IP)
	if err != nil {
		return err
	}
	if err := compare(found); err != nil {
		return err
	}
	s, err := t.program.Dial(ctx, pod.IP)
	if err != nil {
		return err
	}
	for i, n := range found.Writes {
		if err := s.Write(ctx, i, n+1); err != nil {
			return errors.Join(fmt.Errorf("write to the restored program: %w", err), s.Close())
		}
		found.Writes[i]++
	}
	again, err := s.Check(ctx)
	if err == nil && again != found {
		err = fmt.Errorf("after more writes there is %v, want %v", again, found)
	}
	return errors.Join(err, s.Close())
}
