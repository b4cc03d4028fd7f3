package install

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"diapause.dev/cri"
)

// Time limits for containerd.
const (
	containerdTime = 30 * time.Second       // for one answer
	restartTime    = time.Minute            // from a restart until it has read its configuration
	restartPoll    = 200 * time.Millisecond // between two checks
)

// containerd calls f with a client of the host's containerd.
func (o Options) containerd(ctx context.Context, f func(context.Context, *cri.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, containerdTime)
	defer cancel()
	c, err := cri.Dial(ctx, cri.Options{Address: o.host(o.Socket)})
	if err != nil {
		return err
	}
	defer c.Close()
	return f(ctx, c)
}

// supported returns an error of kind cri.ErrUnsupported if Diapause does not work with the running containerd.
func (o Options) supported(ctx context.Context) error {
	return o.containerd(ctx, func(ctx context.Context, c *cri.Client) error {
		version, err := c.Version(ctx)
		if err != nil {
			return fmt.Errorf("install: %w", err)
		}
		if _, err := cri.CheckVersion(version); errors.Is(err, cri.ErrUnsupported) {
			return fmt.Errorf("install: %w", err)
		}
		return nil
	})
}

// handlers returns the runtime handlers of the running containerd.
func (o Options) handlers(ctx context.Context) (all map[string]cri.Handler, err error) {
	err = o.containerd(ctx, func(ctx context.Context, c *cri.Client) error {
		all, err = c.Handlers(ctx)
		return err
	})
	return all, err
}

// known reports whether containerd has all of our handlers, with the right configuration.
func (o Options) known(all map[string]cri.Handler) bool {
	return !slices.ContainsFunc(o.Handlers, func(name string) bool { return !serves(all[name], o.handler()) })
}

// absent reports whether none of the handlers is ours.
func (o Options) absent(all map[string]cri.Handler) bool {
	for _, h := range all {
		if h.Path == o.shim() {
			return false
		}
	}
	return true
}

// serves reports whether a handler has the right configuration. It may pass on more annotations.
func serves(is, shall cri.Handler) bool {
	return is.Type == shall.Type && is.Path == shall.Path && reflect.DeepEqual(is.Options, shall.Options) &&
		contains(is.PodAnnotations, shall.PodAnnotations) && contains(is.ContainerAnnotations, shall.ContainerAnnotations)
}

func contains(all, some []string) bool {
	return !slices.ContainsFunc(some, func(s string) bool { return !slices.Contains(all, s) })
}

// errNotRead is the kind of error for a containerd that does not run with its new configuration.
var errNotRead = errors.New("containerd does not run with its new configuration")

// restarted restarts containerd, unless its handlers satisfy well already, and returns once they do.
func (o Options) restarted(ctx context.Context, well func(map[string]cri.Handler) bool) error {
	all, err := o.handlers(ctx)
	if err != nil {
		return err
	}
	if well(all) {
		o.Logger.Info("containerd runs with this configuration already")
		return nil
	}
	if o.Restart == nil {
		o.Logger.Warn("containerd has to be restarted to take up its new configuration, which is left to others")
		return nil
	}
	o.Logger.Info("restarting containerd")
	if err := o.Restart(ctx); err != nil {
		return fmt.Errorf("restart containerd: %w", err)
	}
	return o.wait(ctx, well)
}

// wait returns once containerd's handlers satisfy well. While containerd does not answer, it is still starting.
func (o Options) wait(ctx context.Context, well func(map[string]cri.Handler) bool) error {
	bound := o.RestartTime
	if bound == 0 {
		bound = restartTime
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	for {
		all, err := o.handlers(ctx)
		if err == nil && well(all) {
			o.Logger.Info("containerd runs with its new configuration")
			return nil
		}
		select {
		case <-ctx.Done():
			if err == nil {
				err = fmt.Errorf("its runtime handlers do not follow %s: look for a later import that overrides the "+
					"handlers, and into containerd's log", o.DropIn)
			}
			return fmt.Errorf("%w %s after its restart: %w", errNotRead, bound, err)
		case <-time.After(restartPoll):
		}
	}
}
