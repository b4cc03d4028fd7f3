// Package usage tells a command line that is wrong from one that failed, for all programs alike.
package usage

// ExitCode is a program's exit code for an Error.
const ExitCode = 2

// Error is a command line that cannot be run.
type Error struct{ Err error }

// Error implements error.
func (e Error) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e Error) Unwrap() error { return e.Err }
