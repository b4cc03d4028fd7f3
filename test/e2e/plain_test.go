package e2e

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// foreign is what no condition, event or annotation may say to the owner of an object: stacks, words of protocols,
// whole ids, places in memory, lines of their own, and errors of Go's formats.
var foreign = regexp.MustCompile(`goroutine \d|\bt?t?rpc\b|desc = |\b[0-9a-f]{64}\b|\b0x[0-9a-f]{6,}|[\n\r\t]|` +
	`%!|<nil>|panic:|map\[`)

// maxSaid is the most that an event may say, in bytes: the API server refuses more.
const maxSaid = 1024

// said is what the API server shows of an object that may speak.
type said struct {
	Kind     string
	Metadata metav1.ObjectMeta
	Status   struct{ Conditions []metav1.Condition }
}

// plain fails the test if Diapause has told the owners of a namespace's objects something that is foreign to them. Each
// test calls it at its end. So all that goes wrong in the tests is looked at.
func (w *world) plain(ctx context.Context, namespace string) {
	w.Helper()
	events, err := w.Client.EventsV1().Events(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		w.Error(err)
		return
	}
	for _, e := range events.Items {
		if e.ReportingController == "diapause" {
			w.checkPlain("event of "+e.Regarding.Kind+" "+e.Regarding.Name, e.Note)
		}
	}
	out, err := w.Kubectl(ctx, "--namespace="+namespace, "get", "--output=json", "pods,podsnapshots,"+
		"podsnapshotmanualtriggers,podsnapshotpolicies,sleeppolicies")
	var all struct{ Items []said }
	if err == nil {
		err = json.Unmarshal([]byte(out), &all)
	}
	if err != nil {
		w.Error(err)
		return
	}
	for _, o := range all.Items {
		w.checkObject(o)
	}
}

func (w *world) checkObject(o said) {
	w.Helper()
	for _, c := range o.Status.Conditions {
		ours := o.Kind != "Pod" || c.Type == podsnapshotv1.ConditionPodRestored ||
			strings.HasPrefix(c.Type, "diapause.dev/")
		if ours {
			w.checkPlain("condition "+c.Type+" of "+o.Kind+" "+o.Metadata.Name, c.Message)
		}
	}
	if text := o.Metadata.Annotations[podsnapshotv1.AnnotationSleepStatus]; text != "" {
		w.checkPlain("answer to "+o.Kind+" "+o.Metadata.Name, text)
	}
}

func (w *world) checkPlain(where, text string) {
	w.Helper()
	if found := foreign.FindString(text); found != "" || len(text) > maxSaid {
		w.Errorf("%s has %d bytes, and says %q: %s", where, len(text), found, text)
	}
}
