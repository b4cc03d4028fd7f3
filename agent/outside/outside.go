// Package outside has the rule for volumes outside snapshots: hostPath volumes and persistent ones. A checkpoint notes
// how the files are that the pod may have changed. A pod whose volume has gone on since is not restored, because its
// memory would be older than its files.
package outside

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc"
	"diapause.dev/runsc/hostfile"
	"diapause.dev/runsc/kubelet"
)

const (
	// findTime bounds the search for files, which a file system that does not answer would hold up.
	findTime = 10 * time.Second
	// pauseTime bounds how long the pause waits for file systems of other machines.
	pauseTime = 20 * time.Millisecond
	// syncTime bounds how long the end of a sandbox waits for its volumes to be written.
	syncTime = 10 * time.Second
	// compareTime bounds how long a restore waits for all volumes.
	compareTime = 5 * time.Second
)

// Files are the files of a pod that a snapshot notes. The zero Files are none.
type Files struct {
	found *hostfile.Files
	err   error // why they could not be found
}

// Find finds the files of a pod's volumes outside its snapshot. Call it just before the pod is paused.
func Find(pod *cri.Pod, rec snapshot.Pod) *Files {
	done := make(chan *Files, 1)
	go func() {
		f := new(Files)
		f.found, f.err = find(pod, rec)
		done <- f
	}()
	select {
	case f := <-done:
		return f
	case <-time.After(findTime):
		go func() { (<-done).Close() }()
		return &Files{err: errors.New("a file system does not answer")}
	}
}

func find(pod *cri.Pod, rec snapshot.Pod) (*hostfile.Files, error) {
	mounts, err := mountsOf(rec)
	if err != nil || len(mounts) == 0 {
		return nil, err
	}
	shim, children, err := runsc.Processes(pod.SandboxPID)
	if err != nil {
		return nil, err
	}
	s := hostfile.Sandbox{Shim: shim, Processes: children, Began: pod.Created}
	return hostfile.Find(s, mounts, func(host string) bool { return kubelet.Outlives(pod.UID, host) })
}

// mountsOf returns what the containers of a recorded pod mount, in the same order each time.
func mountsOf(rec snapshot.Pod) (all []hostfile.Mount, err error) {
	mounts, err := cri.Mounts(rec)
	for host, places := range mounts {
		all = append(all, hostfile.Mount{Host: host, Container: places[0].Container, Path: places[0].Path})
	}
	slices.SortFunc(all, func(a, b hostfile.Mount) int { return cmp.Compare(a.Host, b.Host) })
	return all, err
}

// Any reports whether the pod has such volumes, which are to be noted.
func (f *Files) Any() bool { return f != nil && f.found != nil && f.found.Any() }

// Note returns the volumes with their files as they are now. Call it during the pause.
func (f *Files) Note() []snapshot.Volume {
	if !f.Any() {
		return nil
	}
	return f.found.Note(pauseTime)
}

// Sync writes the files to their disks. Call it before the sandbox is ended: a loss of power must not leave them older
// than its memory.
func (f *Files) Sync(log *slog.Logger) {
	if !f.Any() {
		return
	}
	if left := f.found.Sync(syncTime); len(left) > 0 {
		log.Warn("after a loss of power the snapshot may not be restored: not all is on disk", "volumes", left)
	}
}

// Close frees the files.
func (f *Files) Close() {
	if f != nil && f.found != nil {
		f.found.Close()
	}
}

// maxNamed bounds how many volumes one warning names.
const maxNamed = 3

// Warning says which changes of the noted volumes a restore will not notice, or nothing.
func (f *Files) Warning(noted []snapshot.Volume) string {
	if f != nil && f.err != nil {
		return fmt.Sprintf("a restore will not notice changes of the pod's volumes: %v", f.err)
	}
	var unknown []string
	for i := range noted {
		if v := &noted[i]; v.Unknown != "" {
			unknown = append(unknown, fmt.Sprintf("volume %s (%.200s)", v, v.Unknown))
		}
	}
	if len(unknown) == 0 {
		return ""
	}
	more := ""
	if n := len(unknown) - maxNamed; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return "a restore may not notice changes of " +
		strings.Join(unknown[:min(len(unknown), maxNamed)], ", ") + more
}

// nodeRoot is the root of the node's file system, as its first process sees it.
const nodeRoot = "/proc/1/root"

// Compare returns an error of kind hostfile.ErrChanged if a volume has changed since a snapshot was made of which a pod
// with this UID is to be restored.
func Compare(ctx context.Context, m *snapshot.Meta, uid string) error {
	return compare(ctx, nodeRoot, m, uid)
}

func compare(ctx context.Context, root string, m *snapshot.Meta, uid string) error {
	ctx, cancel := context.WithTimeout(ctx, compareTime)
	defer cancel()
	volumes := slices.Clone(m.Volumes)
	for i := range volumes {
		volumes[i].Host = kubelet.InPod(volumes[i].Host, m.Origin.PodUID, uid)
	}
	err := hostfile.Compare(ctx, root, volumes)
	if errors.Is(err, hostfile.ErrChanged) {
		return fmt.Errorf("snapshot %s: %w: its memory is older than these files. If the pod itself writes them when it "+
			"ends, have it saved then (on-termination: checkpoint); who knows that they fit sets %s: %s on the new pod",
			m.Key, err, podsnapshotv1.AnnotationVolumeCheck, podsnapshotv1.VolumeCheckIgnore)
	}
	if err != nil {
		return fmt.Errorf("snapshot %s: %w", m.Key, err)
	}
	return nil
}
