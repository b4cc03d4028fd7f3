package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"diapause.dev/test/bed"
	"diapause.dev/test/tools"
)

// ownRoot is where runsc keeps the state of the containers that are started here.
const ownRoot = runDir + "/runsc"

// runscFlags are those with which the bed's handler calls runsc, except for the cgroup, which costs every mode the
// same.
var runscFlags = []string{"--platform=systrap", "--restore-spec-validation=ignore", "--ignore-cgroups"}

// runscStock is the runsc that the bed has anyway.
const runscStock = "stock"

// runscUsage is the help text of the flag that chooses it.
const runscUsage = "the runsc of the node: stock, the `name` of another that was built beside it, or a path"

// useRunsc puts another runsc in the place of the bed's, before any pod is made: a file of this path or, without a
// slash in it, the program of this name that was built beside runsc. The bed's programs are its own.
func useRunsc(bin tools.Bin, choice string) error {
	if choice == runscStock {
		return nil
	}
	if !strings.Contains(choice, "/") {
		choice = bin.Path(choice)
	}
	data, err := os.ReadFile(choice)
	if err != nil {
		return fmt.Errorf("runsc: %w", err)
	}
	part := bin.Path("runsc.part") // the bed's runsc shares its bytes with that of .cache
	if err := os.WriteFile(part, data, 0o755); err != nil {
		return fmt.Errorf("runsc: %w", err)
	}
	return os.Rename(part, bin.Path("runsc"))
}

// waitDelay is how long a runsc that was told to end may take.
const waitDelay = 5 * time.Second

// runsc runs the program to its end. Its output goes to a file, which a sandbox that stays may keep
// open.
func (n *node) runsc(ctx context.Context, root string, args ...string) error {
	out, err := os.CreateTemp(runDir, "runsc-*.log")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	flags := append([]string{"--root=" + root}, runscFlags...)
	cmd := exec.CommandContext(ctx, n.bed.Bin.Path("runsc"), append(flags, args...)...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, out, waitDelay
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(out.Name()) // without it the error still says which command
		return fmt.Errorf("runsc %s: %w: %s", args[0], err, bytes.TrimSpace(text))
	}
	return nil
}

// saveFlate has stock runsc save a pod's sandbox, compressed.
func (n *node) saveFlate(ctx context.Context, sandbox, dir string) error {
	return n.runsc(ctx, bed.RunscRoot, "checkpoint", "--leave-running", "--compression=flate-best-speed",
		"--image-path="+dir, sandbox)
}
