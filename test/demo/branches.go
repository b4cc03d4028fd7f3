package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"diapause.dev/test/workload/answers"
)

// branch is one restored pod.
type branch struct {
	name string
	endpoint
	first answers.State // its first answer
	took  time.Duration // from the start of the command to that answer
	err   error
}

// restore brings the snapshot back and waits for each branch's first answer.
func (d *demo) restore(ctx context.Context) error {
	d.say("%d branches of it are restored", branches)
	var wg sync.WaitGroup
	begin := time.Now()
	seen := func(line string) {
		b := parseRow(line)
		if b == nil {
			return
		}
		d.branches = append(d.branches, b)
		wg.Go(func() {
			b.first, b.err = b.await(ctx)
			b.took = time.Since(begin)
		})
	}
	err := d.diapause(ctx, seen, "restore", "--count", fmt.Sprint(branches), "--name", "branch", frozen)
	wg.Wait()
	if err == nil && len(d.branches) != branches {
		err = fmt.Errorf("%d branches were restored, want %d", len(d.branches), branches)
	}
	for _, b := range d.branches {
		err = errors.Join(err, b.err)
	}
	slices.SortFunc(d.branches, func(a, b *branch) int { return strings.Compare(a.name, b.name) })
	return err
}

// parseRow reads a row of restored pods: id, namespace/name, address, time; nil for other lines.
func parseRow(line string) *branch {
	f := strings.Fields(line)
	if len(f) < 3 || !strings.Contains(f[1], "/") {
		return nil
	}
	return &branch{name: f[1][strings.Index(f[1], "/")+1:], endpoint: endpoint(f[2])}
}

// compare wants every branch to have continued from the instant of the checkpoint, and then lets
// one change its memory, which must not show in the others.
func (d *demo) compare(ctx context.Context) error {
	d.say("each branch continues from that instant and goes its own way")
	for _, b := range d.branches {
		if err := continues(b.first, d.before, d.after, b.took); err != nil {
			return fmt.Errorf("%s: %w", b.name, err)
		}
		d.note("%s: boot id %s as the origin's; counter %d at its first answer, %d to %d at the checkpoint",
			b.name, b.first.Boot, b.first.Counter, d.before.Counter, d.after.Counter)
	}
	if err := d.branches[0].post(ctx, "/dirty?mib_per_s=200"); err != nil {
		return err
	}
	if !sleep(ctx, 200*time.Millisecond) {
		return ctx.Err()
	}
	all := map[string]endpoint{origin: d.origin}
	for _, b := range d.branches {
		all[b.name] = b.endpoint
	}
	for name, e := range all {
		if err := whole(ctx, e); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	d.note("every page of the origin and of both branches verified, while one branch overwrites its own")
	return nil
}

// continues wants s to be the life that was checkpointed between before and after, having run on
// for at most ran since.
func continues(s, before, after answers.State, ran time.Duration) error {
	most := after.Counter + int64(ran/answers.Tick) + 1
	switch {
	case s.Boot == "" || s.Boot != before.Boot || s.Boot != after.Boot:
		return fmt.Errorf("boot id %q, want %q: it was started, not restored", s.Boot, before.Boot)
	case s.Counter < before.Counter || s.Counter > most:
		return fmt.Errorf("counter %d, want %d to %d", s.Counter, before.Counter, most)
	}
	return nil
}

// whole wants every page to be what it was, and time to go on.
func whole(ctx context.Context, e endpoint) error {
	var v answers.Memory
	if err := e.get(ctx, "/verify", &v); err != nil {
		return err
	}
	if !v.OK || v.Pages != memoryMiB<<20/4096 {
		return fmt.Errorf("%d of %d pages are not what they were", v.Bad, v.Pages)
	}
	var a, b answers.State
	if err := e.get(ctx, "/state", &a); err != nil {
		return err
	}
	for end := time.Now().Add(5 * time.Second); b.Counter <= a.Counter; {
		if !sleep(ctx, answers.Tick) || time.Now().After(end) {
			return fmt.Errorf("the counter stays at %d", a.Counter)
		}
		if err := e.get(ctx, "/state", &b); err != nil {
			return err
		}
	}
	return nil
}
