package daemonset

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"diapause.dev/test/bed"
	"diapause.dev/test/images"
)

// page is where a new user reads how a pod is frozen and brought back.
type page struct {
	path, heading string
	bucket, dir   string // what the page says of the store, and what the test does in its place
}

var pages = []page{
	{"../../docs/quickstart.md", "## On a cluster", "gcs: {bucket: my-bucket}", "dir: {path: /var/lib/diapause/store}"},
}

// follow does what a page says, with a directory in place of the bucket.
func follow(ctx context.Context, t *testing.T, c *bed.Cluster, p page) {
	t.Helper()
	data, err := os.ReadFile(p.path)
	must(t, err)
	_, chapter, _ := strings.Cut(string(data), p.heading)
	configs, pod := block(t, chapter, "```yaml\n", "```", 0), block(t, chapter, "```yaml\n", "```", 1)
	trigger := block(t, chapter, "<<EOF\n", "EOF\n", 0)
	if !strings.Contains(configs, p.bucket) {
		t.Fatalf("the bucket of %s is not %q", p.path, p.bucket)
	}
	must(t, c.Apply(ctx, strings.Replace(configs, p.bucket, p.dir, 1)))
	pod = strings.Replace(pod, "image: busybox", "image: "+images.Busybox, 1)
	must(t, c.Apply(ctx, pod))
	kubectl(ctx, t, c, "wait", "--for=condition=Ready", "pod/counter", "--timeout=60s")
	must(t, bed.Until(ctx, func() error { // then it can be told from a fresh one
		out, err := c.Kubectl(ctx, "logs", "counter")
		if err == nil && !strings.Contains(out, "\n2\n") {
			err = fmt.Errorf("the counter has come to %q", out)
		}
		return err
	}))
	must(t, c.Apply(ctx, trigger))
	kubectl(ctx, t, c, "wait", "--for=condition=Triggered", "podsnapshotmanualtrigger/first", "--timeout=60s")
	name := kubectl(ctx, t, c, "get", "podsnapshotmanualtrigger/first", "--output=jsonpath={.status.snapshotCreated.name}")
	kubectl(ctx, t, c, "delete", "pod", "counter", "--wait", "--grace-period=1")
	must(t, c.Apply(ctx, pod))
	kubectl(ctx, t, c, "wait", "--for=condition=Ready", "pod/counter", "--timeout=60s")
	restored := kubectl(ctx, t, c, "get", "pod", "counter",
		`--output=jsonpath={.status.conditions[?(@.type=="PodRestored")].message}`)
	if want := "Successfully restored the pod from PodSnapshot default/" + name; restored != want {
		t.Errorf("PodRestored says %q, want %q", restored, want)
	}
	var counts []string
	must(t, bed.Until(ctx, func() error {
		out, err := c.Kubectl(ctx, "logs", "counter")
		if counts = strings.Fields(out); err == nil && len(counts) == 0 {
			err = errors.New("the restored counter has not counted yet")
		}
		return err
	}))
	if counts[0] == "1" {
		t.Errorf("the counter begins anew: %q", counts)
	}
	kubectl(ctx, t, c, "delete", "pod", "counter", "--wait", "--grace-period=1")
	kubectl(ctx, t, c, "delete", "podsnapshotmanualtriggers,podsnapshots", "--all", "--wait")
}

// block returns the text of the documentation between two marks, the n-th of those.
func block(t *testing.T, text, from, to string, n int) string {
	t.Helper()
	for ; n >= 0; n-- {
		var ok bool
		if _, text, ok = strings.Cut(text, from); !ok {
			t.Fatalf("the documentation has no more %q", from)
		}
	}
	out, _, ok := strings.Cut(text, to)
	if !ok {
		t.Fatalf("the documentation has no %q after %q", to, from)
	}
	return out
}
