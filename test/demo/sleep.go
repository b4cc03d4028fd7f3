package main

import (
	"context"
	"fmt"
	"time"

	"diapause.dev/test/workload/answers"
)

// nap puts the origin to sleep, and wakes it by a request.
func (d *demo) nap(ctx context.Context) error {
	if err := d.branches[0].post(ctx, "/dirty?mib_per_s=0"); err != nil {
		return err
	}
	before, err := d.origin.await(ctx)
	if err != nil {
		return err
	}
	d.say("the origin is put to sleep: its memory is free, its address stays")
	began := time.Now()
	if err := d.diapause(ctx, nil, "sleep", origin); err != nil {
		return err
	}
	d.fell = time.Since(began)
	if err := d.diapause(ctx, nil, "top"); err != nil {
		return err
	}
	d.say("a request for its address wakes it")
	var after answers.State
	began = time.Now()
	if err := d.origin.get(ctx, "/state", &after); err != nil {
		return err
	}
	d.woke = time.Since(began)
	if after.Boot != before.Boot || after.Counter < before.Counter {
		return fmt.Errorf("the origin is at %d of life %s, it was at %d of %s", after.Counter, after.Boot, before.Counter,
			before.Boot)
	}
	d.note("boot id %s as before; counter %d before it slept, %d in the answer", after.Boot, before.Counter, after.Counter)
	var memory answers.Memory
	if err := d.origin.get(ctx, "/verify", &memory); err != nil {
		return err
	}
	if !memory.OK {
		return fmt.Errorf("the origin's memory is not as it was: %d pages of %d", memory.Bad, memory.Pages)
	}
	return nil
}
