package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"diapause.dev/test/bed"
	"diapause.dev/test/images"
	"diapause.dev/test/workload/answers"
)

// readyTime bounds the wait for a workload's first answer.
const readyTime = 3 * time.Minute

// serving describes a pod with a workload of so many MiB.
func (n *node) serving(name string, mib int, annotations map[string]string) bed.PodSpec {
	return bed.PodSpec{
		Name: name, Namespace: namespace, Annotations: annotations, CPULimit: n.cpuLimit,
		Containers: []bed.Container{{
			Name: "app", Image: images.Workload, Command: []string{"/bin/workload", "serve", "--mib", strconv.Itoa(mib)},
		}},
	}
}

// runWorkload starts a pod with a workload and returns when that has filled its memory.
func runWorkload(ctx context.Context, n *node, mib int) (*bed.Pod, error) {
	pod, err := n.bed.RunPod(ctx, n.serving(fmt.Sprintf("workload-%d", mib), mib, nil))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	if err := bed.Until(ctx, func() error { return ask(ctx, pod, "/state", nil) }); err != nil {
		return nil, fmt.Errorf("wait for the workload: %w", err)
	}
	if n.dirty == 0 {
		return pod, nil
	}
	return pod, order(ctx, pod.IP, fmt.Sprintf("/dirty?mib_per_s=%d", n.dirty))
}

// ask decodes a workload's answer to a path; into may be nil.
func ask(ctx context.Context, pod *bed.Pod, path string, into any) error {
	return askAt(ctx, pod.IP, path, into)
}

// askAt is ask, of the workload at an address.
func askAt(ctx context.Context, ip, path string, into any) error {
	url := "http://" + ip + ":8080" + path
	b, err := bed.Fetch(ctx, url)
	if err != nil || into == nil {
		return err
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	return nil
}

// turnLoop starts or stops the loop over its memory of the workload at an address.
func turnLoop(ctx context.Context, ip string, on bool) error {
	return order(ctx, ip, fmt.Sprintf("/loop?on=%t", on))
}

// order has the workload at an address do something.
func order(ctx context.Context, ip, path string) error {
	url := "http://" + ip + ":8080" + path
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, nil)
	if err != nil {
		return err
	}
	r, err := bed.Client.Do(req)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, r.Status)
	}
	return nil
}

var errNoGap = errors.New("the workload saw no gap during the checkpoint")

// longest returns the longest gap that overlaps the time between begin and end.
func longest(gaps []answers.Gap, begin, end time.Time) (time.Duration, error) {
	var most time.Duration
	for _, g := range gaps {
		if g.Start().Before(end) && g.End().After(begin) {
			most = max(most, g.Took())
		}
	}
	if most == 0 {
		return 0, errNoGap
	}
	return most, nil
}
