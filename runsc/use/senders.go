package use

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"diapause.dev/runsc/traffic"
)

// senders is what the name of a file with senders ends with.
const senders = ".senders"

const (
	// sendersTime is for how long it is watched who sends.
	sendersTime = 10 * time.Second
	// maxSenders bounds the senders in a file, and maxSendersFile its size in bytes.
	maxSenders     = 3
	maxSendersFile = 4 << 10
)

// WatchSenders watches for some seconds who sends packets to the network namespace of a process, less what is to be
// ignored, and writes those who have sent most to a file beside that of the sandbox's sessions. One call for a sandbox
// is made at a time.
func WatchSenders(ctx context.Context, pid int, ignored []traffic.Ignored, sessions string) error {
	ctx, cancel := context.WithTimeout(ctx, sendersTime)
	defer cancel()
	all, err := traffic.Watch(ctx, pid)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(c traffic.Count) bool {
		return slices.ContainsFunc(ignored, func(x traffic.Ignored) bool { return x.Covers(c.Flow) })
	})
	data, err := json.Marshal(all[:min(len(all), maxSenders)])
	if err != nil {
		return err
	}
	return replace(sessions+senders, data)
}

// Senders returns who has sent most packets to a sandbox while WatchSenders has watched, those of most packets first.
func Senders(dir, sandbox string) (all []traffic.Count, err error) {
	f, err := os.Open(filepath.Join(dir, sandbox+senders))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxSendersFile))
	if err == nil {
		err = json.Unmarshal(data, &all)
	}
	if err != nil {
		return nil, fmt.Errorf("senders of packets to sandbox %s: %w", sandbox, err)
	}
	return all[:min(len(all), maxSenders)], nil
}
