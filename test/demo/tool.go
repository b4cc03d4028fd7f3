package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// inspected is what "diapause inspect" says of a snapshot.
type inspected struct {
	RawBytes    int64   `json:"raw_bytes"`
	StoredBytes int64   `json:"stored_bytes"`
	Ratio       float64 `json:"ratio"`
	Timeline    []struct {
		Name   string  `json:"name"`
		TookMS float64 `json:"took_ms"`
	} `json:"timeline"`
	TotalMS float64 `json:"total_ms"`
}

// diapause runs the operator's tool and shows what it prints; seen, if not nil, gets every line as
// it comes.
func (d *demo) diapause(ctx context.Context, seen func(line string), args ...string) error {
	d.command("diapause " + strings.Join(args, " "))
	cmd := tool(ctx, args)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if seen != nil {
			seen(lines.Text())
		}
		d.output(lines.Text())
	}
	return explain(args, errors.Join(lines.Err(), cmd.Wait()), errOut.String())
}

func (d *demo) inspect(ctx context.Context, name string, into any) error {
	args := []string{"inspect", "--output", "json", name}
	cmd := tool(ctx, args)
	var errOut bytes.Buffer
	cmd.Stderr = &errOut
	b, err := cmd.Output()
	if err != nil {
		return explain(args, err, errOut.String())
	}
	return explain(args, json.Unmarshal(b, into), string(b))
}

// tool is the command, which ends the way Ctrl-C ends it when ctx does.
func tool(ctx context.Context, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "diapause", args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

func explain(args []string, err error, said string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("diapause %s: %w\n%s", strings.Join(args, " "), err, strings.TrimSpace(said))
}
