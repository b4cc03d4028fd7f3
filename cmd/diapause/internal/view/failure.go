package view

import "io"

// Failure is what a failed command prints if it has no result. A result that is printed although the command failed
// has the same fields.
type Failure struct {
	Error string `json:"error,omitempty"`      // for people
	Code  string `json:"error_code,omitempty"` // its kind, for programs
}

// Table writes nothing: people read the error on standard error.
func (Failure) Table(io.Writer) error { return nil }
