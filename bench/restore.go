package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"diapause.dev/test/bed"
)

// The modes of the benchmark of the restore, besides modeStockNone and modeStockFlate.
const (
	modeHot       = "diapause-hot"
	modeCold      = "diapause-cold"
	modeColdStart = "cold-start"
	modeHotPod    = "diapause-pod"
	modeColdPod   = "cold-pod"
)

// restores measures restores of one pod: as a Diapause snapshot and as image files of stock gVisor,
// all of the same sandbox.
type restores struct {
	*node
	mib      int
	snapshot string  // "" until there is one
	none     string  // directory of image files on a tmpfs, uncompressed
	flate    string  // directory of image files on a disk, compressed
	bundle   *bundle // of the pod
	idle     *bundle // the same, but for its app, which only sleeps
	dir      string  // on a disk, for all of it
	witness  *bed.Pod
	count    int             // of sandboxes
	checked  map[string]bool // modes whose first restore was found to be right
}

func prepareRestore(ctx context.Context, n *node, mib int) (_ subject, err error) {
	r, pod, err := startRestores(ctx, n, mib)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(r.save(ctx, pod), n.bed.RemovePod(ctx, pod.ID)); err != nil {
		return nil, errors.Join(err, r.close(context.WithoutCancel(ctx)))
	}
	return r, nil
}

// startRestores starts the pod that is to be saved.
func startRestores(ctx context.Context, n *node, mib int) (r *restores, pod *bed.Pod, err error) {
	r = &restores{node: n, mib: mib, none: filepath.Join(runDir, "image"), checked: make(map[string]bool)}
	if r.dir, err = os.MkdirTemp("", "restore"); err != nil {
		return nil, nil, err
	}
	r.flate = filepath.Join(r.dir, "image")
	if r.witness, err = n.bed.RunPod(ctx, bed.PodSpec{Name: "witness", Namespace: namespace}); err == nil {
		pod, err = runWorkload(ctx, n, mib)
	}
	if err != nil {
		return nil, nil, errors.Join(err, r.close(context.WithoutCancel(ctx)))
	}
	return r, pod, nil
}

// save saves the pod in each way.
func (r *restores) save(ctx context.Context, pod *bed.Pod) (err error) {
	for _, d := range []string{r.none, r.flate} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	if r.bundle, err = copyBundle(pod, filepath.Join(r.dir, "bundle")); err != nil {
		return err
	}
	if r.idle, err = copyBundle(pod, filepath.Join(r.dir, "idle")); err != nil {
		return err
	}
	r.idle.app.Process.Args = []string{"/bin/sleep", "infinity"}
	name := fmt.Sprintf("restore-%d", r.mib)
	if _, err := r.checkpoint(ctx, pod.ID, name); err != nil {
		return err
	}
	r.snapshot = name
	if err := r.cri.Checkpoint(ctx, pod.ID, r.none); err != nil {
		return err
	}
	return r.saveFlate(ctx, pod.ID, r.flate)
}

func (r *restores) close(ctx context.Context) error {
	errs := []error{os.RemoveAll(r.dir), os.RemoveAll(r.none)}
	if r.witness != nil {
		errs = append(errs, r.bed.RemovePod(ctx, r.witness.ID))
	}
	if r.snapshot != "" {
		errs = append(errs, r.remove(ctx, r.snapshot))
	}
	return errors.Join(errs...)
}

// measure implements subject: from the start of the first process to the first successful exec.
func (r *restores) measure(ctx context.Context, mode string) (time.Duration, error) {
	switch mode {
	case modeHot:
		return r.inSandbox(ctx, mode, r.bundle, r.fromAgent)
	case modeCold:
		return r.chilled(func() (time.Duration, error) { return r.inSandbox(ctx, mode, r.bundle, r.fromAgent) })
	case modeStockNone:
		return r.inSandbox(ctx, mode, r.bundle, fromFiles(r.none))
	case modeStockFlate:
		return r.inSandbox(ctx, mode, r.bundle, fromFiles(r.flate))
	case modeColdStart:
		return r.inSandbox(ctx, mode, r.idle, nil)
	case modeHotPod:
		return r.inPod(ctx, mode, restoreFrom(r.snapshot))
	case modeColdPod:
		return r.inPod(ctx, mode, nil)
	}
	return 0, fmt.Errorf("no mode %q", mode)
}

// chilled calls f while the snapshot is in the store alone.
func (r *restores) chilled(f func() (time.Duration, error)) (time.Duration, error) {
	back, err := chill()
	if err != nil {
		return 0, err
	}
	took, err := f()
	return took, errors.Join(err, back())
}

// inSandbox starts a sandbox by runsc alone, and removes it.
func (r *restores) inSandbox(ctx context.Context, mode string, b *bundle,
	from imagePath,
) (took time.Duration, err error) {
	r.count++
	s, err := r.newSandbox(b, fmt.Sprintf("bench-%d", r.count), networkNamespace)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, s.remove(context.WithoutCancel(ctx))) }()
	begin := time.Now()
	if err := s.start(ctx, from); err != nil {
		return 0, err
	}
	err = retry(ctx, func() error { return s.exec(ctx, "/bin/true") })
	took = time.Since(begin)
	if err != nil || from == nil {
		return took, err
	}
	return took, r.check(mode, func(command ...string) error { return s.exec(ctx, command...) })
}

// inPod starts a pod as a kubelet does, and removes it.
func (r *restores) inPod(ctx context.Context, mode string,
	annotations map[string]string,
) (took time.Duration, err error) {
	r.count++
	before, err := r.bed.AgentMemory()
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	pod, err := r.bed.RunPod(ctx, r.serving(fmt.Sprintf("pod-%d", r.count), r.mib, annotations))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, r.bed.RemovePod(context.WithoutCancel(ctx), pod.ID)) }()
	exec := func(command ...string) error {
		out, code, err := r.bed.Exec(ctx, pod.Containers[0].ID, command...)
		if err == nil && code != 0 {
			err = fmt.Errorf("exec %q: exit status %d: %s", command, code, out)
		}
		return err
	}
	err = retry(ctx, func() error { return exec("/bin/true") })
	took = time.Since(begin)
	if err != nil {
		return took, err
	}
	return took, r.look(ctx, mode, pod, before, exec)
}

// look checks the first pod of a mode, and notes what is charged for it once it has all its memory.
func (r *restores) look(ctx context.Context, mode string, pod *bed.Pod, before bed.Memory,
	exec func(command ...string) error,
) error {
	if r.checked[mode] {
		return nil
	}
	err := retry(ctx, func() error { // one that was started anew fills its memory first
		return exec("/bin/sh", "-c", "wget -q -O - http://127.0.0.1:8080/state")
	})
	if err == nil {
		err = r.check(mode, exec)
	}
	if err != nil {
		return err
	}
	return r.noteMemory(mode, r.mib, pod, before)
}

// check has the workload look at all of its memory, the first time that it was restored in a mode.
func (r *restores) check(mode string, exec func(command ...string) error) error {
	if r.checked[mode] {
		return nil
	}
	r.checked[mode] = true
	return exec("/bin/sh", "-c", `wget -q -O - http://127.0.0.1:8080/verify | tee /dev/stderr | grep -q '"ok":true'`)
}

const (
	// retryPause is between two attempts at an exec.
	retryPause = time.Millisecond
	// execTime bounds the wait for the first exec that succeeds.
	execTime = time.Minute
)

// retry calls f until it succeeds.
func retry(ctx context.Context, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, execTime)
	defer cancel()
	for {
		err := f()
		if err == nil {
			return nil
		}
		if sleep(ctx, retryPause) != nil {
			return fmt.Errorf("first exec: %w: %w", context.Cause(ctx), err)
		}
	}
}
