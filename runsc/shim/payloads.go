package shim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"diapause.dev/runsc/kubelet"
	"diapause.dev/runsc/volume"
)

// GVisor looks again for each file that was held, by its path. In a ConfigMap, Secret, projected or downward API volume
// that path leads through a directory whose name is another one in each pod, and after the kubelet has written the
// volume again. So the directory of the snapshot is put beside the kubelet's own. The kubelet leaves it alone, and
// removes it with the volume.

// current is the link by which the kubelet names its own directory in a volume.
const current = "..data"

// payloadLimit bounds how long a wake is delayed by these directories.
const payloadLimit = 20 * time.Second

// payloads puts such directories into a pod's volumes, as the agent sends them for a request.
type payloads struct {
	agent   agent
	pod     pod
	request string
	anew    bool // replace what is there already, unless it is the kubelet's own
}

// add puts directories in place, which are named as by kubelet.Payload. After an error some of them may be.
func (x payloads) add(ctx context.Context, names []string) error {
	for _, name := range names {
		p, err := kubelet.ParsePayload(name)
		if err == nil {
			err = x.addOne(ctx, p)
		}
		if err != nil {
			return fmt.Errorf("volume %s, of which the snapshot's processes hold files: %w", p.Volume, err)
		}
	}
	return nil
}

func (x payloads) addOne(ctx context.Context, p kubelet.Payload) error {
	dir, err := kubelet.WrittenDir(x.pod.uid, p.Volume)
	if err != nil {
		return err
	}
	own, err := os.Readlink(filepath.Join(dir, current))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if own == p.Dir {
		return nil
	}
	if _, err := os.Lstat(filepath.Join(dir, p.Dir)); err == nil && !x.anew {
		return nil
	}
	return x.agent.receive(ctx, dir, p.String(), x.request, func(ctx context.Context, r io.Reader) error {
		return volume.Add(ctx, dir, p.Dir, r)
	})
}

// back is add for a pod that is about to wake: the kubelet may have written its volumes meanwhile.
func (x payloads) back(names []string) error {
	if len(names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), payloadLimit,
		fmt.Errorf("not done within %v", payloadLimit))
	defer cancel()
	return x.add(ctx, names)
}
