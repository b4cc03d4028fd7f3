package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"diapause.dev/test/bed"
	"diapause.dev/test/workload/answers"
)

// endpoint is the address of a workload.
type endpoint string

// maxAnswer bounds one answer, in bytes.
const maxAnswer = 4 << 20

// get decodes the answer to a path; into may be nil.
func (e endpoint) get(ctx context.Context, path string, into any) error {
	return e.ask(ctx, http.MethodGet, path, into)
}

func (e endpoint) post(ctx context.Context, path string) error {
	return e.ask(ctx, http.MethodPost, path, nil)
}

func (e endpoint) ask(ctx context.Context, method, path string, into any) error {
	url := "http://" + string(e) + ":8080" + path
	req, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return err
	}
	r, err := bed.Client.Do(req)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(io.LimitReader(r.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s: %.200s", url, r.Status, b)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(b, into); err != nil {
		return fmt.Errorf("%s: %w", url, err)
	}
	return nil
}

// await asks until there is an answer and returns it.
func (e endpoint) await(ctx context.Context) (s answers.State, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		if err = e.get(ctx, "/state", &s); err == nil {
			return s, nil
		}
		if !sleep(ctx, 2*time.Millisecond) {
			return s, fmt.Errorf("no answer: %w", err)
		}
	}
}

// sleep reports whether d has passed, rather than ctx ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
