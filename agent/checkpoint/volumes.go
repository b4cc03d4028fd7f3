package checkpoint

import (
	"context"

	"diapause.dev/agent/outside"
	"diapause.dev/agent/volumes"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
)

// podVolumes are the volumes of a pod: those that its snapshot will hold, and those that it will not.
type podVolumes struct {
	inside  *volumes.Volumes  // that lie on the node; nil: not looked for
	outside *outside.Files    // of volumes that are not part of the snapshot; nil: not looked for
	noted   []snapshot.Volume // how those are, as of the pause
}

// find finds the volumes that the snapshot will hold, and reads them before the pause.
func (v *podVolumes) find(ctx context.Context, o volumes.Config, pod *cri.Pod, rec snapshot.Pod,
	scope snapshot.Scope,
) (err error) {
	if v.inside, err = volumes.Find(o, pod, rec, scope); err != nil {
		return err
	}
	return v.inside.Warm(ctx)
}

// findOutside finds the files of volumes that are not part of the snapshot, just before the pause. A snapshot of files
// alone has no memory that could be older.
func (v *podVolumes) findOutside(pod *cri.Pod, rec snapshot.Pod, scope snapshot.Scope) {
	if scope == snapshot.WholePod {
		v.outside = outside.Find(pod, rec)
	}
}

// any reports whether something is to be done in the pause.
func (v *podVolumes) any() bool { return v.inside.Any() || v.outside.Any() }

// capture copies the volumes while the sandbox is paused, and notes how those are that are not part of the snapshot.
func (v *podVolumes) capture(ctx context.Context) error {
	v.noted = v.outside.Note()
	return v.inside.Capture(ctx)
}

// close frees what was found and captured.
func (v *podVolumes) close() {
	v.inside.Close()
	v.outside.Close()
}
