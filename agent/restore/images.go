package restore

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
)

// CheckContainer returns an error of kind errkind.ErrImage if a container that is about to start in a sandbox that is
// restored as a whole was made from another image than the one in the snapshot: the processes would find other files
// than those they have in memory. A tag is no image, since it can be moved. The image is known only once there is the
// container, so this cannot be checked before the sandbox is made. The pod's next sandbox is then not restored from
// this snapshot at all.
func (rs *Restores) CheckContainer(ctx context.Context, request, containerID string) error {
	r, err := rs.registry.find(ctx, request)
	if err != nil {
		return err
	}
	if r.Scope == snapshot.RootfsOnly { // files alone are laid over any image
		return nil
	}
	name, digest, err := rs.Runtime.Image(ctx, containerID)
	if err != nil {
		return err
	}
	err = sameImage(r.meta, name, digest)
	if err != nil {
		rs.images.note(r.Pod, r.UID, err)
	}
	return err
}

// sameImage compares a new container's image with that of the container of the same name in a snapshot.
func sameImage(meta *snapshot.Meta, name, digest string) error {
	all := meta.Pod.Containers
	i := slices.IndexFunc(all, func(c snapshot.Container) bool { return c.Name == name })
	if i < 0 || all[i].Image == "" || all[i].Image == digest { // empty: an earlier agent has made the snapshot
		return nil
	}
	if digest == "" {
		digest = "one that containerd does not know"
	}
	return fmt.Errorf("restore %s: container %s: %w: the snapshot was made with %.80s, the new pod has %.80s: "+
		"use the former image, or take a new snapshot", meta.Key, name, errkind.ErrImage, all[i].Image, digest)
}

// otherImages are the pods whose images differ from those of a snapshot. Its methods may be called concurrently.
type otherImages struct {
	mu  sync.Mutex
	all map[podAndSnapshot]error
}

type podAndSnapshot struct{ pod, snapshot string } // their UIDs

// maxOtherImages bounds otherImages. Beyond it all are forgotten. They are found once more if their pods still start.
const maxOtherImages = 4096

func (o *otherImages) note(pod snapshot.PodRef, uid string, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.all == nil || len(o.all) >= maxOtherImages {
		o.all = make(map[podAndSnapshot]error)
	}
	o.all[podAndSnapshot{pod.UID, uid}] = err
}

// found returns how a pod's images differ from those of a snapshot, if that has been found before.
func (o *otherImages) found(pod snapshot.PodRef, uid string) error {
	if pod.UID == "" {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.all[podAndSnapshot{pod.UID, uid}]
}
