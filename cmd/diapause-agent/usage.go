package main

import (
	"errors"

	"diapause.dev/agent/errkind"
	"diapause.dev/cmd/internal/usage"
)

func exitCode(err error) int {
	switch {
	case err == nil:
		return errkind.ExitOK
	case errors.As(err, new(usage.Error)):
		return errkind.ExitUsage
	}
	return errkind.ExitFailure
}
