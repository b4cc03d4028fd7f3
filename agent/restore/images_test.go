package restore

import (
	"context"
	"errors"
	"strings"
	"testing"

	"diapause.dev/agent/errkind"
	"diapause.dev/api/snapshot"
)

// imaged is a runtime that knows one container.
type imaged struct {
	Runtime
	name, digest string
	err          error
}

func (i *imaged) Image(context.Context, string) (string, string, error) {
	return i.name, i.digest, i.err
}

// TestHostileImages: a container is started in a restored sandbox only with the image that the snapshot was made with.
// If it has another one, the pod's next sandbox is not restored from that snapshot, and others are.
func TestHostileImages(t *testing.T) {
	a := newRig(t)
	runtime := &imaged{name: "app", digest: "sha256:aa"}
	a.config.Runtime = runtime
	a.next(t)
	a.make(t, "one", "text", snapshot.WholePod)
	r := a.mustPrepare(t, "pod")
	r.Pod.UID = "p"
	r.meta.Pod.Containers = []snapshot.Container{{Name: "app", Image: "sha256:aa"}, {Name: "old"}}
	for _, x := range []imaged{
		{name: "app", digest: "sha256:aa"},
		{name: "old", digest: "sha256:bb"}, // an earlier agent has made the snapshot
		{name: "new", digest: "sha256:bb"}, // not in the snapshot
	} {
		*runtime = x
		if err := a.CheckContainer(t.Context(), r.Request, "id"); err != nil {
			t.Errorf("%+v: %v", x, err)
		}
	}
	pod := snapshot.PodRef{Namespace: "n", Name: "pod", UID: "p"}
	if err := a.images.found(pod, "one"); err != nil {
		t.Fatal(err)
	}
	*runtime = imaged{err: errors.New("away")}
	if err := a.CheckContainer(t.Context(), r.Request, "id"); !errors.Is(err, runtime.err) {
		t.Errorf("containerd does not answer: %v", err)
	}
	for _, digest := range []string{"", "sha256:bb"} {
		*runtime = imaged{name: "app", digest: digest}
		err := a.CheckContainer(t.Context(), r.Request, "id")
		if !errors.Is(err, errkind.ErrImage) || !strings.Contains(err.Error(), "sha256:aa") ||
			!strings.Contains(err.Error(), digest) {
			t.Errorf("image %q: %v", digest, err)
		}
	}
	if err := a.CheckContainer(t.Context(), "unknown", "id"); err == nil {
		t.Error("an unknown restore")
	}
	for _, x := range []struct {
		uid     string
		refused bool
	}{{"p", true}, {"another", false}, {"", false}} {
		pod.UID = x.uid
		_, _, err := a.prepare(t.Context(), Choice{Snapshot: saved}, pod, "sandbox-"+x.uid, 0)
		if errors.Is(err, errkind.ErrImage) != x.refused || err != nil && !x.refused {
			t.Errorf("pod %q: %v", x.uid, err)
		}
	}
	pod.UID = "p"
	a.make(t, "two", "text", snapshot.WholePod)
	if _, _, err := a.prepare(t.Context(), Choice{Snapshot: saved}, pod, "sandbox", 0); err != nil {
		t.Errorf("another snapshot: %v", err)
	}
}
