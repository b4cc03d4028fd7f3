package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"diapause.dev/cri"
)

// Install puts everything in place, and restarts containerd if that runs with another configuration. If it is run
// again, it changes only what differs. If containerd would not read the drop-in, or is not supported, it changes
// nothing, and the error says what to write where, or which version to install. If pods would not survive the change of
// gVisor, it changes nothing either, and the error is of kind ErrAsleep.
func Install(ctx context.Context, o Options) error {
	if err := o.validate(); err != nil {
		return err
	}
	// What readMain says is for versions that are supported.
	if err := o.supported(ctx); err != nil {
		return err
	}
	main, err := o.readMain()
	if err != nil {
		return err
	}
	l, err := lock(o.host(o.Dir))
	if err != nil {
		return err
	}
	defer l.Close()
	if err := o.spareAsleep(ctx); err != nil {
		return err
	}
	if err := o.placePrograms(); err != nil {
		return err
	}
	if err := o.placeConfigs(main); err != nil {
		return err
	}
	return o.restarted(ctx, o.known)
}

func (o Options) placePrograms() error {
	for _, name := range programs {
		changed, err := placeProgram(o.source(name), o.host(o.Dir, "bin", name))
		if err != nil {
			return err
		}
		o.placed(filepath.Join(o.Dir, "bin", name), changed)
	}
	return nil
}

func (o Options) placeConfigs(main mainConfig) error {
	runsc, err := o.runsc()
	if err != nil {
		return err
	}
	dropIn, err := o.dropIn(main)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		path    string
		content []byte
	}{{o.runscConfig(), runsc}, {o.DropIn, dropIn}} {
		changed, err := placeFile(o.host(f.path), f.content)
		if err != nil {
			return err
		}
		o.placed(f.path, changed)
	}
	return nil
}

func (o Options) placed(path string, changed bool) {
	if changed {
		o.Logger.Info("installed", "file", path)
	} else {
		o.Logger.Debug("in place already", "file", path)
	}
}

// ErrInUse is the kind of error of [Uninstall] while pods run under the runtime.
var ErrInUse = errors.New("pods run under the runtime")

// Uninstall removes what Install has installed. While pods run under the runtime it refuses, with an error of kind
// ErrInUse that names them. With force, it removes only the handlers from containerd: no new pods start, and
// containerd executes nothing more in the running ones. It leaves the programs to these. It never removes snapshots.
func Uninstall(ctx context.Context, o Options, force bool) error {
	if err := o.validate(); err != nil {
		return err
	}
	l, err := lock(o.host(o.Dir))
	if err != nil {
		return err
	}
	defer l.Close()
	pods, err := o.pods(ctx)
	if err != nil {
		return err
	}
	if len(pods) > 0 && !force {
		return fmt.Errorf("uninstall: %w: delete %s first", ErrInUse, strings.Join(pods, ", "))
	}
	removed, err := removeFile(o.host(o.DropIn))
	if err != nil {
		return err
	}
	if removed {
		o.Logger.Info("removed", "file", o.DropIn)
	}
	if err := o.restarted(ctx, o.absent); err != nil {
		return err
	}
	if len(pods) > 0 {
		o.Logger.Warn("programs are left to the pods that run: uninstall again when they have ended", "dir", o.Dir, "pods",
			pods)
		return nil
	}
	return o.removePrograms()
}

// pods returns the names of the pods that run under the runtime.
func (o Options) pods(ctx context.Context) (names []string, err error) {
	err = o.containerd(ctx, func(ctx context.Context, c *cri.Client) error {
		pods, err := c.Pods(ctx)
		for _, p := range pods {
			if p.Ready && p.Runtime == cri.RuntimeType {
				names = append(names, p.String())
			}
		}
		return err
	})
	return names, err
}

// removePrograms removes the files that Install puts under Dir, and then the directories that are empty. Files of
// others stay.
func (o Options) removePrograms() error {
	paths := []string{o.host(o.runscConfig())}
	for _, p := range programs {
		paths = append(paths, o.host(o.Dir, "bin", p))
	}
	for _, p := range paths {
		if _, err := removeFile(p); err != nil {
			return err
		}
	}
	for _, d := range []string{"bin/gvisor-bin", "bin", ""} {
		_ = os.Remove(o.host(o.Dir, d)) // not empty: others have put files there
	}
	o.Logger.Info("removed", "dir", o.Dir)
	return nil
}
