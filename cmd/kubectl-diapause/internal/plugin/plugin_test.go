package plugin

import (
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"diapause.dev/agent/errkind"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/test/docs/help"
)

var update = flag.Bool("update", false, "write the page of the plugin")

// TestReference: the page has the help of each command.
func TestReference(t *testing.T) {
	help.Check(t, "../../../../docs/reference/kubectl.md", *update, (&plugin{out: io.Discard, err: io.Discard}).root())
}

// TestRefuses: a wrong command line, and a cluster that does not answer, get an error that says so.
func TestRefuses(t *testing.T) {
	bare := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, known := map[string]string{
			"/api":  `{"kind": "APIVersions", "versions": ["v1"]}`,
			"/apis": `{"kind": "APIGroupList", "apiVersion": "v1", "groups": []}`,
		}[r.URL.Path]
		if !known {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, answer)
	}))
	defer bare.Close()
	config, other := configOf(t, "http://127.0.0.1:1"), configOf(t, bare.URL)
	for name, tc := range map[string]struct {
		args string
		code int
		says string
	}{
		"unknown command": {"freeze web", errkind.ExitUsage, "unknown command"},
		"no pod":          {"sleep", errkind.ExitUsage, "accepts 1 arg"},
		"no time":         {"ls --timeout=0s", errkind.ExitUsage, "--timeout"},
		"wrong time":      {"sleep web --wake-at=tomorrow", errkind.ExitUsage, "2030-12-31T07:30:00Z"},
		"no kubeconfig":   {"ls --kubeconfig=/nonexistent", errkind.ExitFailure, "/nonexistent"},
		"no cluster":      {"ls --kubeconfig=" + config, errkind.ExitFailure, "127.0.0.1:1"},
		"no context":      {"ls --context=other --kubeconfig=" + config, errkind.ExitFailure, "other"},
		"no Diapause":     {"ls --kubeconfig=" + other, errkind.ExitFailure, "install Diapause first"},
		"version":         {"version", errkind.ExitOK, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", "/nonexistent/by-environment")
			var out, errOut strings.Builder
			if code := Run(t.Context(), strings.Fields(tc.args), &out, &errOut); code != tc.code ||
				!strings.Contains(errOut.String(), tc.says) {
				t.Errorf("exit code %d, want %d; it says %q, want %q", code, tc.code, errOut.String(), tc.says)
			}
		})
	}
}

// configOf returns the path of a kubeconfig for a server.
func configOf(t *testing.T, server string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config")
	err := os.WriteFile(path, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c,
contexts: [{name: c, context: {cluster: c}}], clusters: [{name: c, cluster: {server: %q}}]}`, server), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// TestOutcome: a trigger is waited for until it has made a snapshot, or has failed.
func TestOutcome(t *testing.T) {
	var trigger podsnapshotv1.PodSnapshotManualTrigger
	if _, done, err := outcome(&trigger); done || err != nil {
		t.Errorf("nobody has taken it: %v, %v", done, err)
	}
	set := func(s metav1.ConditionStatus) {
		trigger.Status.Conditions = []metav1.Condition{{
			Type: podsnapshotv1.ConditionTriggered, Status: s, Message: "the message",
		}}
	}
	set(metav1.ConditionUnknown)
	if _, done, err := outcome(&trigger); done || err != nil {
		t.Errorf("an agent works on it: %v, %v", done, err)
	}
	set(metav1.ConditionFalse)
	if _, done, err := outcome(&trigger); done || err == nil || err.Error() != "the message" {
		t.Errorf("it has failed: %v, %v", done, err)
	}
	set(metav1.ConditionTrue)
	trigger.Status.SnapshotCreated = &podsnapshotv1.SnapshotCreated{Name: "s"}
	if s, done, err := outcome(&trigger); s != "s" || !done || err != nil {
		t.Errorf("it is complete: %q, %v, %v", s, done, err)
	}
}

// TestStateOf: what is said of a pod.
func TestStateOf(t *testing.T) {
	ago := metav1.NewTime(time.Now().Add(-3 * time.Hour))
	asleep := func(s corev1.ConditionStatus, reason string) *corev1.Pod {
		return &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{
			Type: podsnapshotv1.ConditionAsleep, Status: s, Reason: reason, Message: "why", LastTransitionTime: ago,
		}}}}
	}
	readyToWake := asleep(corev1.ConditionTrue, podsnapshotv1.ReasonSlept)
	readyToWake.Status.Conditions[0].Message = "The pod is saved and ready to wake: …"
	for name, tc := range map[string]struct {
		pod                *corev1.Pod
		state, at, message string
	}{
		"asleep":   {asleep(corev1.ConditionTrue, podsnapshotv1.ReasonSlept), "Asleep", "3h", ""},
		"ready":    {readyToWake, "Asleep", "3h", "ready to wake"},
		"unwoken":  {asleep(corev1.ConditionTrue, podsnapshotv1.ReasonWakeFailed), "Asleep", "3h", "why"},
		"woken":    {asleep(corev1.ConditionFalse, podsnapshotv1.ReasonWoke), "Awake", "3h", ""},
		"no sleep": {&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}}, "Awake", "-", ""},
		"pending":  {&corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodPending}}, "Pending", "-", ""},
	} {
		if s, at, m := stateOf(tc.pod); s != tc.state || at != tc.at || m != tc.message {
			t.Errorf("%s: %q, %q, %q", name, s, at, m)
		}
	}
}
