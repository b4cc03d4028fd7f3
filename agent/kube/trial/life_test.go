package trial

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
)

// TestLife: a pod that has written nothing yet is waited for, and so is a line that is newer than the first.
func TestLife(t *testing.T) {
	answers := []string{"waiting", "", "word 7", "word 7", "word 8"}
	tr := &trial{Config: Config{Logs: func(context.Context, string, string) (string, error) {
		next := answers[0]
		answers = answers[1:]
		if next == "waiting" {
			return "", errors.New("the container is waiting to start")
		}
		return next, nil
	}}}
	if word, err := tr.life(t.Context()); word != "word" || err != nil || len(answers) > 0 {
		t.Errorf("got %q, %v; %d answers are left", word, err, len(answers))
	}
}

// TestLive: the workload writes one word all its life, and another one in another life.
func TestLive(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var first, second bytes.Buffer
	for _, out := range []*bytes.Buffer{&first, &second} {
		if err := Live(ctx, out); err != nil || !strings.HasSuffix(out.String(), " 1\n") {
			t.Errorf("it wrote %q, %v", out, err)
		}
	}
	if first.String() == second.String() {
		t.Errorf("two lives write %q", &first)
	}
}
