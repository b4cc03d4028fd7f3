package shim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/runsc/kubelet"
	"diapause.dev/runsc/volume"
)

// A snapshot may contain emptyDir volumes that lie on the node. The shim puts them into the new pod's directories
// while the sandbox is created: by then the kubelet has made the directories, and the containers come later.

// fillLimit bounds how long it may take to put volumes in place. A kubelet waits twice two minutes for a sandbox.
const fillLimit = 150 * time.Second

// Annotations that tell gVisor's shim to keep an emptyDir volume inside the sandbox (hintPrefix), or to leave it on
// the node all the same (onNodePrefix) (pkg/shim/v1/utils/volumes.go).
const (
	hintPrefix   = "dev.gvisor.spec.mount."
	hintType     = ".type"
	onNodePrefix = "dev.gvisor.empty-dir."
	onNodeSuffix = ".force-shared"
)

// volumes puts the volumes of a pod that is restored in place.
type volumes struct {
	agent    agent
	pod      pod
	progress *progress
}

// fill puts the volumes of a restore in place, and returns the answer to act on. If a volume cannot be put in place,
// the sandbox is not restored.
func (f volumes) fill(ctx context.Context, a answer) answer {
	if a.err != nil || len(a.resp.GetVolumes())+len(a.resp.GetPayloads()) == 0 {
		return a
	}
	began := time.Now()
	put, err := f.fillAll(ctx, a)
	if err == nil {
		slog.Info("volumes are in place", "sandbox", f.pod.sandbox, "volumes", put, "took", time.Since(began))
		a.volumes = put
		return a
	}
	slog.Error("the sandbox is not restored", "sandbox", f.pod.sandbox, "request", a.resp.GetRequest(), "error", err)
	f.progress.report(ctx, f.pod.sandbox, f.progress.reportOf(a.order(), err))
	resp := &localv1.AskRestoreResponse{
		Decision: localv1.AskRestoreResponse_START, Request: a.resp.GetRequest(),
		Reason: err.Error(),
	}
	if a.resp.GetStrict() || f.pod.strict() {
		resp.Decision = localv1.AskRestoreResponse_FAIL
		f.progress.pending.of(f.pod.sandbox).Wait() // there is no container, and so no removal, to wait for them
	} else {
		f.pod.started()
	}
	return answer{resp: resp}
}

// fillAll puts all volumes in place and returns the names of those that were empty. After an error they are so again.
func (f volumes) fillAll(ctx context.Context, a answer) (put []string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, fillLimit, fmt.Errorf("not done within %v", fillLimit))
	defer cancel()
	receive := f.agent.receive(a.resp.GetRequest())
	for _, name := range a.resp.GetVolumes() {
		dir, err := kubelet.VolumeDir(f.pod.uid, name)
		if err == nil {
			_, err = os.Lstat(dir)
		}
		if errors.Is(err, fs.ErrNotExist) && a.rootfs() { // a pod restored from files alone may have other volumes
			slog.Info("the sandbox does not have a volume of its snapshot", "sandbox", f.pod.sandbox, "volume", name)
			continue
		}
		if err == nil && f.ownAgain(a) {
			err = volume.Yield(dir)
		}
		if err == nil {
			err = receive(ctx, dir, name, func(ctx context.Context, r io.Reader) error { return volume.Fill(ctx, dir, r) })
		} else {
			err = fmt.Errorf("the pod has no such volume: %w", err)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("volume %s: %w", name, err), volume.Empty(f.pod.uid, put))
		}
		put = append(put, name)
	}
	if err := volume.AddPayloads(ctx, f.pod.uid, a.resp.GetPayloads(), true, receive); err != nil {
		return nil, errors.Join(err, volume.Empty(f.pod.uid, put))
	}
	return put, nil
}

// ownAgain reports whether a pod is restored from its own snapshot, because it slept when the node went down. Its
// volumes are there, but what was written last may not have reached the disk.
func (f volumes) ownAgain(a answer) bool {
	key, slept := f.pod.slept()
	return slept && a.resp.GetSnapshot() == key
}

// receive has content of a request's volumes put in place while the agent sends it.
func (a agent) receive(request string) volume.Receive {
	return func(ctx context.Context, dir, name string, put func(context.Context, io.Reader) error) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		var full error // set if there is no room, and nothing was read
		r, w := io.Pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.CloseWithError(a.readVolume(ctx, request, name, w, func(size int64) error {
				full = room(dir, size)
				return full
			}))
		}()
		err := put(ctx, r)
		cancel(err)
		r.CloseWithError(io.ErrClosedPipe)
		<-done
		if full != nil {
			return full
		}
		return err
	}
}

// room returns an error unless a directory's file system has room for size bytes.
func room(dir string, size int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return err
	}
	if free := int64(st.Bavail) * st.Bsize; free < size {
		return fmt.Errorf("%w: %d bytes are needed, %d are free", unix.ENOSPC, size, free)
	}
	return nil
}

// readVolume writes the content of a volume as the agent sends it, after agreed has accepted its size. If the agent
// goes away, readVolume waits for it, and asks for the rest.
func (a agent) readVolume(ctx context.Context, request, name string, to io.Writer,
	agreed func(size int64) error,
) error {
	var off, size int64
	return a.call(ctx, func(c localv1.ShimClient) error {
		stream, err := c.ReadVolume(ctx, &localv1.ReadVolumeRequest{Request: request, Volume: name, Offset: off})
		for err == nil {
			var m *localv1.ReadVolumeResponse
			if m, err = stream.Recv(); err != nil {
				break
			}
			if off == 0 {
				size, err = m.Size, agreed(m.Size)
			}
			if err == nil {
				_, err = to.Write(m.Data)
			}
			off += int64(len(m.Data))
		}
		if errors.Is(err, io.EOF) && off == size {
			return nil
		}
		return err
	})
}

// clean removes from the pod's volumes what an earlier shim had begun to put in place.
func (f volumes) clean() error {
	if f.pod.uid == "" {
		return nil
	}
	return volume.Clean(f.pod.uid)
}

// hinted reports whether gVisor would keep a volume inside the sandbox that the shim has put in place on the node.
func (f volumes) hinted(a answer) bool { return len(f.pod.onNode(a.volumes)) > 0 }

// onNode returns the annotations that make gVisor leave volumes on the node that it would otherwise keep inside the
// sandbox.
func (p pod) onNode(volumes []string) map[string]string {
	annotations := make(map[string]string)
	for _, name := range volumes {
		if p.annotations[hintPrefix+name+hintType] != "" {
			annotations[onNodePrefix+name+onNodeSuffix] = "true"
		}
	}
	return annotations
}

// onNode returns those annotations for the spec of every container of the pod.
func (c *containers) onNode() map[string]string {
	o, _ := c.bundle.ordered()
	return c.pod.onNode(o.Volumes)
}
