package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// woken is a sandbox that was started, and that can be asked over its network.
type woken struct {
	*sandbox
	link   *link
	begin  time.Time // when its first process was started
	before int64     // bytes fetched until then
	undo   func() error
}

// wake starts a sandbox in a mode by runsc alone, as bench restore does, with a network. The caller has called ready,
// and removes the sandbox.
func (w *wakes) wake(ctx context.Context, mode string) (k *woken, err error) {
	w.count++
	k = &woken{undo: func() error { return nil }}
	defer func() {
		if err != nil {
			err = errors.Join(err, k.remove(context.WithoutCancel(ctx)))
		}
	}()
	if k.link, err = newLink(w.count); err != nil {
		return k, err
	}
	bundle, from := w.bundle, imagePath(w.fromAgent)
	switch mode {
	case modeEmpty:
		bundle, from = w.idle, nil
	case modeStockNone:
		from = fromFiles(w.none)
	case modeCold:
		if k.undo, err = chill(); err != nil {
			return k, err
		}
	}
	if k.sandbox, err = w.newSandbox(bundle, fmt.Sprintf("wake-%d", w.count), k.link.path); err != nil {
		return k, err
	}
	if k.before, err = w.fetched(mode); err != nil {
		return k, err
	}
	k.begin = time.Now()
	return k, k.start(ctx, from)
}

// ready brings the agent and the store behind the wire to where a mode begins.
func (w *wakes) ready(ctx context.Context, mode string) error {
	if mode == modeWireFirst {
		if err := w.forgetWorkingSet(ctx); err != nil {
			return err
		}
	}
	return w.agentFor(ctx, mode)
}

// remove removes the sandbox, as far as there is one.
func (k *woken) remove(ctx context.Context) error {
	var errs []error
	if k.sandbox != nil {
		errs = append(errs, k.sandbox.remove(ctx))
	}
	if k.undo != nil {
		errs = append(errs, k.undo())
	}
	if k.link != nil {
		errs = append(errs, k.link.close())
	}
	return errors.Join(errs...)
}

// ask waits for the answer of the server inside.
func (k *woken) ask(ctx context.Context, path string, into any) error {
	return retry(ctx, func() error { return askAt(ctx, k.link.ip.String(), path, into) })
}
