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

// manual is the documentation that a new user reads.
const manual = "../../docs/kubernetes.md"

// follow does what the documentation says under "A snapshot, from beginning to end", with a
// directory in place of the bucket.
func follow(ctx context.Context, t *testing.T, c *bed.Cluster) {
	t.Helper()
	data, err := os.ReadFile(manual)
	must(t, err)
	_, chapter, _ := strings.Cut(string(data), "## A snapshot, from beginning to end")
	configs, pod := block(t, chapter, "```yaml\n", "```", 0), block(t, chapter, "```yaml\n", "```", 1)
	trigger := block(t, chapter, "<<EOF\n", "EOF\n", 0)
	bucket := "gcs:\n      bucket: my-bucket\n      path: snapshots\n"
	if !strings.Contains(configs, bucket) {
		t.Fatalf("the documentation's bucket is not %q", bucket)
	}
	must(t, c.Apply(ctx, strings.Replace(configs, bucket, "dir: {path: /var/lib/diapause/store}\n", 1)))
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
	restored := kubectl(ctx, t, c, "get", "pod", "counter", `--output=jsonpath={.status.conditions[?(@.type=="PodRestored")].message}`)
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
