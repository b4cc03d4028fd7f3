package lives

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"diapause.dev/runsc/durable"
	"diapause.dev/runsc/past"
)

const (
	// noteGrace is how long a note is kept at least: containerd may not know the pod's sandbox yet.
	noteGrace = 10 * time.Minute
	// maxNotes bounds the notes of a node. Beyond it, the oldest are removed: containerd knows the pods' sandboxes, too.
	maxNotes = 4096
)

// file is a note in the directory.
type file struct {
	path    string
	written time.Time
}

// Clean removes the notes of pods that the node no longer has. If that is not known, they stay.
func (l *Lives) Clean(ctx context.Context) {
	all, err := l.files() // before it is known which pods there are
	if err == nil {
		all, err = l.removeSurplus(all)
	}
	if err == nil {
		err = l.removeGone(ctx, all)
	}
	if err != nil && ctx.Err() == nil {
		l.Logger.Warn("notes of pods that are gone stay; looked at again later", "error", err)
	}
}

// files returns the notes, the newest first. It removes what interrupted writes have left.
func (l *Lives) files() (all []file, err error) {
	entries, err := os.ReadDir(l.Dir)
	if err != nil {
		return nil, fmt.Errorf("notes of pods: %w", err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil { // it has just been replaced or removed
			continue
		}
		path := filepath.Join(l.Dir, e.Name())
		if filepath.Ext(path) == ".json" {
			all = append(all, file{path, info.ModTime()})
		} else if time.Since(info.ModTime()) > noteGrace {
			err = os.Remove(path)
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, fmt.Errorf("notes of pods: %w", err)
			}
		}
	}
	slices.SortFunc(all, func(a, b file) int { return cmp.Or(b.written.Compare(a.written), cmp.Compare(a.path, b.path)) })
	return all, nil
}

// removeSurplus removes the oldest notes beyond maxNotes, and returns the others.
func (l *Lives) removeSurplus(all []file) ([]file, error) {
	kept := min(len(all), maxNotes)
	for _, f := range all[kept:] {
		if err := durable.Remove(f.path); err != nil {
			return nil, err
		}
	}
	return all[:kept], nil
}

// removeGone removes the notes of pods that neither containerd nor the cluster knows on this node.
func (l *Lives) removeGone(ctx context.Context, all []file) error {
	here, err := l.here(ctx)
	if err != nil {
		return err
	}
	keep := make(map[string]bool)
	for uid := range here {
		keep[past.Path(l.Dir, uid)] = true
	}
	for _, f := range all {
		if keep[f.path] || time.Since(f.written) < noteGrace {
			continue
		}
		if err := durable.Remove(f.path); err != nil {
			return err
		}
	}
	return nil
}

// here returns the UIDs of the node's pods. After a reboot containerd may know none of them.
func (l *Lives) here(ctx context.Context) (map[string]bool, error) {
	uids, err := l.Runtime.UIDs(ctx)
	if err != nil || l.Cluster == nil {
		return uids, err
	}
	theirs, err := l.Cluster.PodUIDs(ctx)
	if err != nil {
		return nil, err
	}
	maps.Copy(uids, theirs)
	return uids, nil
}
