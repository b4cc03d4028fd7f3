package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"diapause.dev/agent/errkind"
	"diapause.dev/cmd/internal/usage"
)

// execute runs a command line.
func execute(ctx context.Context, args []string) error {
	c, understood := command(), false
	c.PersistentPreRun = func(*cobra.Command, []string) { understood = true }
	c.SetArgs(args)
	err := c.ExecuteContext(ctx)
	if err != nil && !understood {
		err = usage.Error{Err: fmt.Errorf("%w; see --help", err)}
	}
	return err
}

func exitCode(err error) int {
	switch {
	case err == nil:
		return errkind.ExitOK
	case errors.As(err, new(usage.Error)):
		return errkind.ExitUsage
	}
	return errkind.ExitFailure
}
