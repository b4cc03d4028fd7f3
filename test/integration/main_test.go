// Package integration proves Diapause as a whole on a bed: a real containerd, a real runsc, the
// agent, the shim, the sidecar, and the command line.
package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"diapause.dev/test/bed"
	"diapause.dev/test/images"
)

func TestMain(m *testing.M) { bed.Main(m) }

// node is a bed with an agent, for one test.
type node struct {
	*testing.T
	ctx   context.Context
	bed   *bed.Bed
	agent *bed.Agent

	readies bool // a pod that is put to sleep is made ready to wake, too
}

// start starts a bed and an agent with the given flags. Both end with the test.
func start(t *testing.T, flags ...string) *node {
	t.Helper()
	return startOn(t, bed.Options{}, flags...)
}

// startOn starts a bed of these options and an agent with the given flags. Both end with the test.
func startOn(t *testing.T, o bed.Options, flags ...string) *node {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // a busy machine takes its time
	t.Cleanup(cancel)
	o.StatsPeriod = "10s" // as docs/tasks/sleep.md recommends; the end-to-end tests have the default
	b, err := bed.Start(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{T: t, ctx: ctx, bed: b}
	n.forget()
	began := time.Now()
	t.Cleanup(func() {
		if t.Failed() {
			bed.ShowDeaths(t, began, "/var/log")
		}
		if err := b.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
		if t.Failed() && n.agent != nil {
			bed.SaveLog(t, "agent", n.agent.Log())
		}
		if t.Failed() {
			bed.SaveLog(t, "containerd", b.Containerd.Log())
		}
	})
	n.startAgent(flags...)
	return n
}

// forget removes what agents of earlier tests have left on the bed's disk.
func (n *node) forget() {
	n.Helper()
	for _, pattern := range []string{"/var/lib/diapause/*", "/run/diapause/requests/*"} {
		left, err := filepath.Glob(pattern)
		if err != nil {
			n.Fatal(err)
		}
		for _, path := range left {
			if err := os.RemoveAll(path); err != nil {
				n.Fatal(err)
			}
		}
	}
}

func (n *node) startAgent(flags ...string) {
	n.Helper()
	a, err := n.bed.StartAgent(n.ctx, append([]string{"--log-level=debug", "--workload-saves"}, flags...)...)
	if err != nil {
		n.Fatal(err)
	}
	n.agent = a
}

// cli runs the operator's command and returns what it printed on standard output.
func (n *node) cli(args ...string) (string, error) {
	cmd := exec.CommandContext(n.ctx, "diapause", args...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	n.Logf("diapause %s: %v\n%s%s", strings.Join(args, " "), err, &out, &errOut)
	if err != nil {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(errOut.String()))
	}
	return out.String(), err
}

// mustCLI is cli for what must succeed.
func (n *node) mustCLI(args ...string) string {
	n.Helper()
	out, err := n.cli(args...)
	if err != nil {
		n.Fatal(err)
	}
	return out
}

// workload runs a pod with one workload.
func (n *node) workload(name string, args ...string) *bed.Pod {
	n.Helper()
	p, err := n.bed.RunPod(n.ctx, bed.PodSpec{Name: name, Containers: []bed.Container{{
		Name: "app", Image: images.Workload, Command: append([]string{"/bin/workload"}, args...),
	}}})
	if err != nil {
		n.Fatal(err)
	}
	return p
}

// snapshotted is what "diapause checkpoint --output json" prints, as far as tests look at it.
type snapshotted struct {
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
	Purpose     string `json:"purpose"`
	RawBytes    int64  `json:"raw_bytes"`
	StoredBytes int64  `json:"stored_bytes"`
	Replicated  bool   `json:"replicated"`
	OnNode      bool   `json:"on_node"`
	Parent      string `json:"parent"`
	Overflow    int64  `json:"overflow_bytes"`
	Problem     string `json:"problem"`
	Timeline    []struct {
		Name   string  `json:"name"`
		TookMS float64 `json:"took_ms"`
	} `json:"timeline"`
	TotalMS float64 `json:"total_ms"`
}

// checkpoint checkpoints a pod by the command line.
func (n *node) checkpoint(args ...string) snapshotted {
	n.Helper()
	var out struct {
		Snapshot snapshotted `json:"snapshot"`
	}
	n.decode(n.mustCLI(append([]string{"--output=json", "checkpoint"}, args...)...), &out)
	return out.Snapshot
}

// restore restores a snapshot by the command line and returns the new pods.
func (n *node) restore(args ...string) []*bed.Pod {
	n.Helper()
	pods, err := n.tryRestore(args...)
	if err != nil {
		n.Fatal(err)
	}
	return pods
}

func (n *node) tryRestore(args ...string) ([]*bed.Pod, error) {
	n.Helper()
	text, err := n.cli(append([]string{"--output=json", "restore"}, args...)...)
	if err != nil {
		return nil, err
	}
	var out struct {
		Pods []struct {
			ID string `json:"id"`
		} `json:"pods"`
	}
	n.decode(text, &out)
	var pods []*bed.Pod
	for _, p := range out.Pods {
		pod, err := n.bed.Pod(n.ctx, p.ID)
		if err != nil {
			n.Fatal(err)
		}
		pods = append(pods, pod)
	}
	return pods, nil
}

func (n *node) decode(text string, out any) {
	n.Helper()
	if err := json.Unmarshal([]byte(text), out); err != nil {
		n.Fatalf("%v in %q", err, text)
	}
}

// get asks a pod's workload and decodes its answer.
func (n *node) get(p *bed.Pod, path string, out any) error {
	return n.getWithin(p, path, out, 20*time.Second)
}

func (n *node) getWithin(p *bed.Pod, path string, out any, limit time.Duration) error {
	ctx, cancel := context.WithTimeout(n.ctx, limit)
	defer cancel()
	b, err := bed.Fetch(ctx, "http://"+p.IP+":8080"+path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, out)
}

// eventually repeats f until it succeeds.
func (n *node) eventually(what string, f func() error) {
	n.Helper()
	ctx, cancel := context.WithTimeout(n.ctx, 2*time.Minute)
	defer cancel()
	if err := bed.Until(ctx, f); err != nil {
		n.Fatalf("%s: %v", what, err)
	}
}
