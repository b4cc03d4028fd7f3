package command

import (
	"context"
	"errors"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"diapause.dev/agent/errkind"
	"diapause.dev/cmd/diapause/internal/view"
	"diapause.dev/cmd/internal/table"
	"diapause.dev/cmd/internal/usage"
)

// callError is a failed call: what was being done, to what, and what the operator can do.
type callError struct {
	doing, object string
	hint          string
	err           error
}

func (e *callError) Error() string {
	s := e.doing
	switch m := status.Convert(e.err).Message(); {
	case strings.HasPrefix(m, e.doing+" ") && strings.Contains(m, e.object):
		s = m // the agent's message is complete
	case e.object == "" || strings.Contains(m, e.object):
		s += ": " + m
	default:
		s += " " + e.object + ": " + m
	}
	if e.hint != "" {
		s += "\n" + e.hint
	}
	return s
}

func (e *callError) Unwrap() error { return e.err }

// failed wraps the error of a call to the agent. Nil stays nil.
func failed(doing, object string, err error) error {
	if err == nil {
		return nil
	}
	return &callError{doing: doing, object: object, hint: hint(err), err: err}
}

// hint says what to do about an error that the agent cannot explain itself.
func hint(err error) string {
	switch kind(err) {
	case codes.Unavailable:
		return `the agent went away: see its log, and "diapause doctor"; requests that it had accepted are in its journal`
	case codes.DeadlineExceeded:
		return "no answer in time: set a longer --timeout"
	case codes.Unimplemented:
		return `this agent does not know the call: compare the versions with "diapause version"`
	}
	return ""
}

// kind returns the class of an error. Errors of contexts get the class that the agent gives them.
func kind(err error) codes.Code {
	switch {
	case errors.Is(err, context.Canceled):
		return codes.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return codes.DeadlineExceeded
	}
	return status.Code(err)
}

// exitCode returns the tool's exit code for an error. If joined errors have the same code, that is the exit code.
func exitCode(err error) int {
	if err == nil {
		return errkind.ExitOK
	}
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return commonCode(all.Unwrap())
	}
	if errors.As(err, new(usage.Error)) {
		return errkind.ExitUsage
	}
	return errkind.ClassOf(kind(err)).Exit
}

func commonCode(errs []error) int {
	code := exitCode(errs[0])
	for _, err := range errs[1:] {
		if exitCode(err) != code {
			return errkind.ExitFailure
		}
	}
	return code
}

// failure returns what to print for an error as JSON. For nil it prints nothing.
func failure(err error) view.Failure {
	if err == nil {
		return view.Failure{}
	}
	code := kind(err)
	if errors.As(err, new(usage.Error)) {
		code = codes.InvalidArgument
	}
	return view.Failure{Error: table.Clean(err.Error()), Code: errkind.ClassOf(code).Name}
}
