// Package usage distinguishes a wrong command line from a command that failed, for all programs.
package usage

// Error is a command line that cannot be run. A program then exits with errkind.ExitUsage.
type Error struct{ Err error }

// Error implements error.
func (e Error) Error() string { return e.Err.Error() }

// Unwrap returns what is wrong.
func (e Error) Unwrap() error { return e.Err }
