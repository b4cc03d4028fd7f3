package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/storage"
	"diapause.dev/storage/dir"
	"diapause.dev/test/bed"
	"diapause.dev/test/images"
)

// heap is the program whose memory is the test data.
//
//go:embed heap.py
var heap string

const (
	namespace = "default"
	storeDir  = "/var/lib/diapause/store"
	// ready is the file that heap makes once it has all its objects. When it finds the file rewrite,
	// it writes to its pages and makes the file rewritten.
	ready     = "/tmp/ready"
	rewrite   = "/tmp/rewrite"
	rewritten = "/tmp/rewritten"
	// idle is how long the process is left alone between two checkpoints.
	idle = 5 * time.Second
	// captureTime bounds a whole capture.
	captureTime = 5 * time.Minute
)

// capture runs inside a bed: it checkpoints a Python process with a large heap (base), again after a
// while (idle), once more when it has written to 5 % of its pages (dirty5), restores base in a new pod
// and checkpoints that (restored), and writes the snapshots as they were cut into chunks to a directory.
func capture(ctx context.Context, to string) (err error) {
	ctx, cancel := context.WithTimeout(ctx, captureTime)
	defer cancel()
	b, err := bed.Start(ctx, bed.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close(context.WithoutCancel(ctx))) }()
	agent, err := b.StartAgent(ctx)
	if err != nil {
		return err
	}
	conn, err := b.DialAgent()
	if err != nil {
		return err
	}
	defer conn.Close() // a client's
	n := &node{bed: b, agent: localv1.NewAgentClient(conn)}
	if err := n.snapshots(ctx); err != nil {
		return fmt.Errorf("%w\n--- log of the agent:\n%s", err, agent.Log())
	}
	return export(ctx, to, baseData, idleData, dirtyData, restoredData)
}

// node is a bed with an agent.
type node struct {
	bed   *bed.Bed
	agent localv1.AgentClient
}

// snapshots makes the snapshots.
func (n *node) snapshots(ctx context.Context) error {
	if err := n.importPython(ctx); err != nil {
		return err
	}
	pod, err := n.bed.RunPod(ctx, bed.PodSpec{Name: "heap", Namespace: namespace, Containers: []bed.Container{{
		Name: "python", Image: images.Python, Command: []string{"/usr/bin/python3", "-c", heap},
	}}})
	if err != nil {
		return err
	}
	if err := n.await(ctx, pod, ready); err != nil {
		return err
	}
	if err := n.checkpoint(ctx, pod.ID, baseData); err != nil {
		return err
	}
	if err := sleep(ctx, idle); err != nil {
		return err
	}
	if err := n.checkpoint(ctx, pod.ID, idleData); err != nil {
		return err
	}
	if err := n.dirty(ctx, pod); err != nil {
		return err
	}
	restored, err := n.restore(ctx, baseData)
	if err != nil {
		return err
	}
	if err := sleep(ctx, idle); err != nil {
		return err
	}
	return n.checkpoint(ctx, restored, restoredData)
}

func (n *node) importPython(ctx context.Context) (err error) {
	f, err := os.CreateTemp("", "python-*.tar")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(f.Name())) }()
	if err := errors.Join(images.WritePython(ctx, f), f.Close()); err != nil {
		return err
	}
	return n.bed.Containerd.Import(ctx, f.Name())
}

// dirty has the process write to its pages, and saves it.
func (n *node) dirty(ctx context.Context, pod *bed.Pod) error {
	_, code, err := n.bed.Exec(ctx, pod.Containers[0].ID, "/usr/bin/python3", "-c", "open('"+rewrite+"', 'w').close()")
	if err != nil || code != 0 {
		return fmt.Errorf("tell the Python process to write to its pages: exit status %d: %w", code, err)
	}
	if err := n.await(ctx, pod, rewritten); err != nil {
		return err
	}
	return n.checkpoint(ctx, pod.ID, dirtyData)
}

// await waits until the process has made a file.
func (n *node) await(ctx context.Context, pod *bed.Pod, file string) error {
	for {
		_, code, err := n.bed.Exec(ctx, pod.Containers[0].ID, "/usr/bin/python3", "-c", "open('"+file+"').close()")
		if err == nil && code == 0 {
			return nil
		}
		if exit, exitErr := n.bed.ExitCode(ctx, pod.Containers[0].ID); exitErr == nil {
			logs, _ := n.bed.Logs(ctx, pod.Containers[0].ID)
			return fmt.Errorf("the Python process exited with status %d: %s", exit, logs)
		}
		if sleepErr := sleep(ctx, 500*time.Millisecond); sleepErr != nil {
			return fmt.Errorf("wait for the Python process: %w", errors.Join(sleepErr, err))
		}
	}
}

// checkpoint returns when the snapshot is in the store.
func (n *node) checkpoint(ctx context.Context, pod, name string) error {
	stream, err := n.agent.Checkpoint(ctx, &localv1.CheckpointRequest{Target: pod, Name: name})
	for err == nil {
		var e *localv1.CheckpointEvent
		if e, err = stream.Recv(); err == nil && e.GetDone() != nil {
			say("captured %s: %d bytes", name, e.GetDone().RawBytes)
			return nil
		}
	}
	return fmt.Errorf("checkpoint %s: %w", name, err)
}

// restore returns the id of the pod when that has all its memory.
func (n *node) restore(ctx context.Context, name string) (string, error) {
	stream, err := n.agent.Restore(ctx, &localv1.RestoreRequest{Namespace: namespace, Snapshot: name})
	for err == nil {
		var e *localv1.RestoreEvent
		if e, err = stream.Recv(); err == nil && e.GetLoaded() != nil {
			return e.GetLoaded().Id, nil
		}
	}
	return "", fmt.Errorf("restore %s: %w", name, err)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// export writes snapshots of the agent's store to a directory.
func export(ctx context.Context, to string, names ...string) error {
	b, err := dir.Open(storeDir)
	if err != nil {
		return err
	}
	defer b.Close() // nothing is written
	s, err := storage.Open(ctx, b, storage.Options{})
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := exportOne(ctx, s, to, name); err != nil {
			return fmt.Errorf("export snapshot %s: %w", name, err)
		}
	}
	return nil
}

func exportOne(ctx context.Context, s *storage.Store, to, name string) (err error) {
	m, err := s.Manifest(ctx, storage.Key{Namespace: namespace, Name: name})
	if err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(to, name+rawSuffix))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	r := storage.NewReader(m, s)
	defer r.Close() // nothing is written
	var cut layout
	for _, file := range m.Files {
		data := make([]byte, file.Size)
		if err := r.ReadAt(ctx, file.Name, 0, [][]byte{data}); err != nil {
			return err
		}
		if _, err := f.Write(data); err != nil {
			return err
		}
		lengths := make([]int, len(file.Chunks))
		for i := range lengths {
			lengths[i] = int(file.Chunks[i].Raw)
		}
		cut = append(cut, cutFile{file.Name, lengths})
	}
	return cut.write(filepath.Join(to, name+layoutSuffix))
}
