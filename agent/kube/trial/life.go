package trial

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// beat is how often the workload writes a line.
const beat = time.Second

// Live is the workload of the trial's pod. It writes a word that only its memory has, again and again, until ctx is
// done.
func Live(ctx context.Context, out io.Writer) error {
	word := rand.Text()
	for n := 1; ; n++ {
		if _, err := fmt.Fprintf(out, "%s %d\n", word, n); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(beat):
		}
	}
}

// life returns the word that the pod writes, once it writes another line than before.
func (t *trial) life(ctx context.Context) (word string, err error) {
	before := ""
	err = wait.PollUntilContextCancel(ctx, poll, true, func(ctx context.Context) (bool, error) {
		last, err := t.Logs(ctx, t.Namespace, Name)
		if err != nil || last == "" {
			return false, nil // the container may have just begun
		}
		if before == "" {
			before = last
		}
		word, _, _ = strings.Cut(last, " ")
		return last != before, nil
	})
	if err != nil {
		return "", fmt.Errorf("trial: read what the pod writes: %w", err)
	}
	return word, nil
}

// same returns an error unless the pod writes what it has written in its first life.
func (t *trial) same(ctx context.Context, before string) error {
	now, err := t.life(ctx)
	if err == nil && now != before {
		err = fmt.Errorf("the pod has started again: it writes %q, and wrote %q before", now, before)
	}
	return err
}
