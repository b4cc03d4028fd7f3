package main

import (
	"errors"

	"diapause.dev/cmd/internal/usage"
)

// The exit codes are the same as diapause(1)'s.
const (
	exitOK      = 0
	exitFailure = 1
)

func exitCode(err error) int {
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, new(usage.Error)):
		return usage.ExitCode
	}
	return exitFailure
}
