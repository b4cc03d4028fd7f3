package integration

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"diapause.dev/test/bed"
	"diapause.dev/test/images"
)

// podsVariable is the environment variable for the number of hostile pods in TestHostileCheckpointsAtOnce. Their size,
// in MiB, is that of sizeVariable. "make bench-budget" sets both.
const podsVariable = "DIAPAUSE_TEST_PODS"

// TestHostileCheckpointsAtOnce checkpoints many pods of one namespace at once, and then one of another. The agent keeps
// to its budget, the others wait before their pause, the other namespace does not wait for all of them, and every pod
// is saved.
func TestHostileCheckpointsAtOnce(t *testing.T) {
	pods, mib := cmp.Or(number(os.Getenv(podsVariable)), 6), cmp.Or(number(os.Getenv(sizeVariable)), 64)
	limit := int64(256) << 20 // room for one, with what it takes besides its pod's memory
	if mib > 64 {
		limit = 3 << 30 // the default
	}
	const metrics = "127.0.0.1:9464"
	at := newPlace(t)
	n := start(t, at.flags("--metrics="+metrics, fmt.Sprint("--checkpoint-memory=", limit), "--disk-floor=1")...)
	if os.Getenv(podsVariable) != "" { // which takes its time
		var cancel context.CancelFunc
		n.ctx, cancel = context.WithTimeout(t.Context(), 20*time.Minute)
		defer cancel()
	}
	before := make(map[string]string)
	for i := range pods {
		p := n.of("hostile", i, mib)
		before[p.ID] = n.serving(p).Boot
	}
	victim := n.of("victim", 0, mib)
	n.serving(victim)

	idle, began := n.agentMemory(), time.Now()
	peak := n.watchMemory()
	var all, last sync.WaitGroup
	var mu sync.Mutex
	var ended []string
	save := func(wg *sync.WaitGroup, namespace, pod string) {
		wg.Go(func() {
			if _, err := n.cli("checkpoint", "--no-wait", "--name=of-"+pod[:12], pod); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			ended = append(ended, namespace)
		})
	}
	for id := range before {
		save(&all, "hostile", id)
	}
	n.eventually("most of them wait", func() error {
		if waiting := n.metric(metrics, "diapause_checkpoints_waiting"); waiting < pods/2 {
			return fmt.Errorf("%d wait", waiting)
		}
		return nil
	})
	save(&last, "victim", victim.ID)
	last.Wait()
	mu.Lock()
	earlier := len(ended) - 1
	mu.Unlock()
	all.Wait()
	grown := peak() - idle
	t.Logf("%d checkpoints of %d MiB took %v; %d MiB more were the agent's, at most, of a budget of %d MiB; the other "+
		"namespace came after %d of %d", pods+1, mib, time.Since(began).Round(time.Millisecond), grown>>20, limit>>20,
		earlier, pods)
	if grown > limit {
		t.Errorf("%d bytes more were charged to the agent, and the budget is %d", grown, limit)
	}
	if earlier > pods-2 {
		t.Errorf("%d of %d checkpoints of the hostile namespace came first", earlier, pods)
	}
	if held := n.metric(metrics, "diapause_checkpoint_memory_bytes"); held != 0 {
		t.Errorf("%d bytes are held in the end", held)
	}
	n.settled(at)
}

// of runs a pod of a namespace.
func (n *node) of(namespace string, i, mib int) *bed.Pod {
	n.Helper()
	p, err := n.bed.RunPod(n.ctx, bed.PodSpec{
		Name: fmt.Sprint(namespace, "-", i), Namespace: namespace, Containers: []bed.Container{{
			Name: "app", Image: images.Workload, Command: []string{"/bin/workload", "serve", fmt.Sprint("--mib=", mib)},
		}},
	})
	if err != nil {
		n.Fatal(err)
	}
	return p
}

// watchMemory looks at what is charged to the agents, page cache aside, until peak is called, which returns the most.
func (n *node) watchMemory() (peak func() int64) {
	ctx, stop := context.WithCancel(n.ctx)
	most := make(chan int64)
	go func() {
		var seen int64
		for tick := time.NewTicker(5 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			if m, err := n.bed.AgentMemory(); err == nil {
				seen = max(seen, m.Held())
			}
		}
		most <- seen
	}()
	return func() int64 {
		stop()
		return <-most
	}
}

// metric returns a metric of the agent, which is a whole number without labels.
func (n *node) metric(address, name string) int {
	n.Helper()
	resp, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		n.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		n.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			f, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				n.Fatal(err)
			}
			return int(f)
		}
	}
	n.Fatalf("no metric %s", name)
	return 0
}
