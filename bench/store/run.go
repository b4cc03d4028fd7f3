package main

import (
	"context"
)

func run(ctx context.Context, only string) error {
	d, err := prepare(ctx, "/tmp/w/wtp")
	if err != nil {
		return err
	}
	say("base %d idle %d restored %d", len(d.base.raw), len(d.idle.raw), len(d.restored.raw))
	return nil
}
