package integration

import (
	"cmp"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"diapause.dev/test/bed"
)

// TestMemoryIsThePods restores a pod, and then another while the agent is killed: what they load is charged
// to them, and not to the agent.
func TestMemoryIsThePods(t *testing.T) {
	mib := cmp.Or(number(os.Getenv(sizeVariable)), 256)
	args := []string{"serve", fmt.Sprintf("--mib=%d", mib)}
	n := start(t)
	p := n.workload("origin", args...)
	st := n.serving(p)
	s := n.checkpoint("origin", "--name=saved")
	for i, restore := range []func() string{
		func() string { return n.restore("saved", "--name=whole")[0].ID },
		func() string {
			return n.interrupted(fromSnapshot("interrupted", "default/saved", args...), 40*time.Millisecond, func() {}).ID
		},
	} {
		before := n.agentMemory()
		id := restore()
		n.idle()
		pod, err := n.bed.Pod(n.ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		m, err := n.bed.PodMemory(pod)
		if err != nil {
			t.Fatal(err)
		}
		grown := n.agentMemory() - before
		t.Logf("restore %d of %d MiB: %d MiB are the pod's, %d MiB more the agent's", i, s.RawBytes>>20, m.Usage>>20,
			grown>>20)
		if m.Usage < s.RawBytes/100*95 {
			t.Errorf("restore %d: %d of %d bytes are charged to the pod", i, m.Usage, s.RawBytes)
		}
		if grown > s.RawBytes/3 { // its heap and what it has decoded
			t.Errorf("restore %d: %d bytes more are charged to the agent", i, grown)
		}
		n.checkWhole(pod, st.Boot, mib)
		if err := n.bed.RemovePod(n.ctx, pod.ID); err != nil {
			t.Error(err)
		}
	}
}

// sizeVariable is the environment variable by which package vm has less memory restored, in MiB.
const sizeVariable = "DIAPAUSE_TEST_MIB"

// number returns a number, or 0 if there is none.
func number(text string) int {
	n, _ := strconv.Atoi(text)
	return n
}

// agentMemory returns what is charged to the agents, page cache aside, in bytes.
func (n *node) agentMemory() int64 {
	n.Helper()
	m, err := n.bed.AgentMemory()
	if err != nil {
		n.Fatal(err)
	}
	return m.Held()
}

// TestMemoryLimit restores pods under limits: one that their memory cannot fit under is named before the restore
// begins, and under one that is wide enough the pod runs.
func TestMemoryLimit(t *testing.T) {
	const mib = 128
	args := []string{"serve", fmt.Sprintf("--mib=%d", mib)}
	n := start(t)
	p := n.workload("origin", args...)
	st := n.serving(p)
	n.checkpoint("origin", "--name=saved")
	limited := func(name string, limit int64) (*bed.Pod, error) {
		spec := fromSnapshot(name, "default/saved", args...)
		spec.MemoryLimit = limit
		return n.bed.RunPod(n.ctx, spec)
	}

	_, err := limited("small", 64<<20)
	for _, want := range []string{
		"restore default/saved: snapshot needs ",
		"the pod's memory limit is 64 MiB: raise the limit",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	n.idle()

	wide, err := limited("wide", (mib+64)<<20)
	if err != nil {
		t.Fatal(err)
	}
	n.checkWhole(wide, st.Boot, mib)
	n.checkWhole(p, st.Boot, mib)
}

// TestMemoryOutgrown has a pod outgrow its limit while it is still loading: it is killed in its own cgroup, and nothing
// else is.
func TestMemoryOutgrown(t *testing.T) {
	const mib = 128
	args := []string{"serve", fmt.Sprintf("--mib=%d", mib)}
	store, err := bed.StartGCS(t.Context(), "bucket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Kill)
	t.Setenv("STORAGE_EMULATOR_HOST", slowed(t, store.Address))
	n := start(t, "--state-dir="+t.TempDir(), "--store=gs://bucket")
	p := n.workload("origin", args...)
	st := n.serving(p)
	n.checkpoint("origin", "--name=saved")
	n.restartAgent("--state-dir="+t.TempDir(), "--store=gs://bucket") // which has nothing of it on the node
	spec := fromSnapshot("glutton", "default/saved", args...)
	spec.MemoryLimit = (mib + 64) << 20
	glutton, err := n.bed.RunPod(n.ctx, spec)
	if err != nil {
		t.Fatal(err)
	}
	if !n.isLoading(glutton) {
		t.Fatal("it has been loaded")
	}
	_, code, err := n.bed.Exec(n.ctx, glutton.Containers[0].ID, "/bin/sh", "-c", "head -c 400m /dev/zero > /dev/shm/more")
	if err == nil && code == 0 {
		t.Error("the pod has twice its limit")
	}
	if codes := n.ended(glutton); codes[0] == 0 {
		t.Errorf("exit codes %d", codes)
	}
	if err := n.bed.RemovePod(n.ctx, glutton.ID); err != nil {
		t.Error(err)
	}
	n.idle()
	n.checkWhole(p, st.Boot, mib)
	select {
	case <-n.agent.Done():
		t.Error("the agent has ended")
	default:
	}
	n.checkWhole(n.restore("saved", "--name=again")[0], st.Boot, mib)
}
