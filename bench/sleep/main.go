// Command sleep measures how fast pods fall asleep and wake, on a node of its own: a real containerd, runsc, shim and
// agent. It prints a table and writes bench/out/sleep.json, a list of {scenario, metric, value, unit}. Before each
// measurement the pod is put to sleep; snapshots are in the node's spool.
//
//	wake/http       from the first packet of a new connection until the first byte of the answer
//	wake/keepalive  the same on a connection that was open when the pod fell asleep
//	wake/exec       a command in a pod that sleeps, less the median of the same in one that is awake
//	fall/asleep     from the request until the sandbox is gone
//	fall/pause      the part of that in which a packet would have to wait: from the capture on
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"text/tabwriter"
	"time"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/test/bed"
	"diapause.dev/test/images"
)

func main() {
	trials := flag.Int("n", 20, "how many measurements of each scenario")
	flag.Parse()
	bed.Enter()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *trials)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench-sleep: failed:", err)
		os.Exit(1)
	}
}

// figure is one line of the result.
type figure struct {
	Scenario string  `json:"scenario"`
	Metric   string  `json:"metric"`
	Value    float64 `json:"value"`
	Unit     string  `json:"unit"`
}

// sizes are how much memory the pods fill, in MiB.
var sizes = []int{64, 256, 1024}

func run(ctx context.Context, trials int) error {
	b, err := bed.Start(ctx, bed.Options{})
	if err != nil {
		return err
	}
	defer b.Close(context.WithoutCancel(ctx))
	daemon, err := b.StartAgent(ctx)
	if err != nil {
		return err
	}
	conn, err := b.DialAgent()
	if err != nil {
		return err
	}
	defer conn.Close()
	m := &meter{bed: b, agent: localv1.NewAgentClient(conn), trials: trials}
	if err := m.all(ctx); err != nil {
		return fmt.Errorf("%w\n--- log of the agent:\n%s", err, daemon.Log())
	}
	m.print(os.Stdout)
	return m.write(filepath.Join(b.Bin.Root, "bench", "out", "sleep.json"))
}

// meter measures on one node.
type meter struct {
	bed     *bed.Bed
	agent   localv1.AgentClient
	trials  int
	figures []figure
}

func (m *meter) all(ctx context.Context) error {
	for _, mib := range sizes {
		if err := m.size(ctx, mib); err != nil {
			return fmt.Errorf("%d MiB: %w", mib, err)
		}
	}
	return m.exec(ctx)
}

// times are the measurements of one scenario.
type times []time.Duration

// size measures one pod of that size.
func (m *meter) size(ctx context.Context, mib int) error {
	pod, err := m.bed.RunPod(ctx, bed.PodSpec{Name: fmt.Sprint("pod-", mib), Containers: []bed.Container{{
		Name: "app", Image: images.Workload, Command: []string{"/bin/workload", "serve", fmt.Sprintf("--mib=%d", mib)},
	}}})
	if err != nil {
		return err
	}
	defer m.bed.RemovePod(context.WithoutCancel(ctx), pod.ID)
	kept := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}, Timeout: time.Minute}
	if err := bed.Until(ctx, func() error { _, err := m.ask(ctx, kept, pod); return err }); err != nil {
		return err
	}
	var fresh, keep, asleep, pause times
	for range m.trials {
		for _, x := range []struct {
			client *http.Client
			into   *times
		}{{&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: time.Minute}, &fresh}, {kept, &keep}} {
			whole, part, err := m.sleep(ctx, pod)
			if err != nil {
				return err
			}
			took, err := m.ask(ctx, x.client, pod)
			if err != nil {
				return err
			}
			*x.into, asleep, pause = append(*x.into, took), append(asleep, whole), append(pause, part)
			if _, err := m.ask(ctx, kept, pod); err != nil { // the kept connection is there for the next sleep
				return err
			}
		}
	}
	m.add(fmt.Sprintf("wake/http/%dMiB", mib), fresh)
	m.add(fmt.Sprintf("wake/keepalive/%dMiB", mib), keep)
	m.add(fmt.Sprintf("fall/asleep/%dMiB", mib), asleep)
	m.add(fmt.Sprintf("fall/pause/%dMiB", mib), pause)
	return nil
}

// ask returns the time until the first byte of a pod's answer.
func (m *meter) ask(ctx context.Context, c *http.Client, pod *bed.Pod) (time.Duration, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+pod.IP+":8080/state", nil)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	resp, err := c.Do(r)
	if err != nil {
		return 0, err
	}
	took := time.Since(began)
	_, err = io.Copy(io.Discard, resp.Body)
	return took, errors.Join(err, resp.Body.Close())
}

// settleTime is how long a pod is left alone before it is put to sleep.
const settleTime = 300 * time.Millisecond

// sleep puts a pod to sleep. It returns how long that took, and how long from the capture on.
func (m *meter) sleep(ctx context.Context, pod *bed.Pod) (whole, pause time.Duration, err error) {
	if _, err := m.agent.Wake(ctx, &localv1.WakeRequest{Target: pod.ID}); err != nil { // returns once it is awake
		return 0, 0, err
	}
	time.Sleep(settleTime)
	began, captured := time.Now(), time.Time{}
	stream, err := m.agent.Sleep(ctx, &localv1.SleepRequest{Target: pod.ID})
	for err == nil {
		var e *localv1.SleepEvent
		if e, err = stream.Recv(); err != nil {
			break
		}
		if e.GetProgress().GetStage() == "capture" && captured.IsZero() {
			captured = time.Now()
		}
		if e.GetAsleep() != nil {
			return time.Since(began), time.Since(captured), nil
		}
	}
	return 0, 0, fmt.Errorf("sleep: %w", err)
}

// exec measures a command in a pod that is awake, and in the same pod asleep.
func (m *meter) exec(ctx context.Context) error {
	pod, err := m.bed.RunPod(ctx, bed.PodSpec{Name: "shell"})
	if err != nil {
		return err
	}
	defer m.bed.RemovePod(context.WithoutCancel(ctx), pod.ID)
	command := func() (time.Duration, error) {
		began := time.Now()
		_, code, err := m.bed.Exec(ctx, pod.Containers[0].ID, "true")
		if err == nil && code != 0 {
			err = fmt.Errorf("exec: status %d", code)
		}
		return time.Since(began), err
	}
	var awake, woken times
	for range m.trials {
		took, err := command()
		if err != nil {
			return err
		}
		awake = append(awake, took)
		if _, _, err := m.sleep(ctx, pod); err != nil {
			return err
		}
		if took, err = command(); err != nil {
			return err
		}
		woken = append(woken, took)
	}
	slices.Sort(awake)
	base := awake[len(awake)/2]
	for i := range woken {
		woken[i] -= base
	}
	m.add("awake/exec", awake)
	m.add("wake/exec", woken)
	return nil
}

// add adds the percentiles of a scenario.
func (m *meter) add(scenario string, t times) {
	t = slices.Sorted(slices.Values(t))
	at := func(p int) float64 {
		return math.Round(float64(t[max((len(t)*p+99)/100, 1)-1].Microseconds())) / 1000
	}
	m.figures = append(m.figures,
		figure{scenario, "p50", at(50), "ms"}, figure{scenario, "p90", at(90), "ms"}, figure{scenario, "max", at(100), "ms"},
		figure{scenario, "n", float64(len(t)), ""})
	fmt.Fprintf(os.Stderr, "%s: p50 %.0f ms, p90 %.0f ms\n", scenario, at(50), at(90))
}

func (m *meter) print(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "scenario\tp50 ms\tp90 ms\tmax ms\tn\t")
	for f := range slices.Chunk(m.figures, 4) {
		fmt.Fprintf(t, "%s\t%.1f\t%.1f\t%.1f\t%.0f\t\n", f[0].Scenario, f[0].Value, f[1].Value, f[2].Value, f[3].Value)
	}
	t.Flush()
}

func (m *meter) write(path string) error {
	b, err := json.MarshalIndent(m.figures, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}
