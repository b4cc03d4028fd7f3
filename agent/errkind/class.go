package errkind

import "google.golang.org/grpc/codes"

// The exit codes of all programs.
const (
	ExitOK          = 0
	ExitFailure     = 1
	ExitUsage       = 2 // the command line, or the request, cannot be right
	ExitNotFound    = 3
	ExitInterrupted = 130
)

// Class is how an error of a gRPC code appears to those who call a program. Package local says which kind of error has
// which code.
type Class struct {
	Code codes.Code
	Name string // error_code in what a program prints as JSON
	Exit int    // the program's exit code
}

// Classes are the classes that a program names. All other codes are failures.
var Classes = []Class{
	{codes.InvalidArgument, "usage", ExitUsage},
	{codes.NotFound, "not_found", ExitNotFound},
	{codes.AlreadyExists, "already_exists", ExitFailure},
	{codes.FailedPrecondition, "failed_precondition", ExitFailure},
	{codes.ResourceExhausted, "resource_exhausted", ExitFailure},
	{codes.Unavailable, "unavailable", ExitFailure},
	{codes.DataLoss, "data_loss", ExitFailure},
	{codes.Aborted, "aborted", ExitFailure},
	{codes.Canceled, "canceled", ExitInterrupted},
	{codes.DeadlineExceeded, "deadline_exceeded", ExitFailure},
	{codes.PermissionDenied, "permission_denied", ExitFailure},
	{codes.Unimplemented, "unimplemented", ExitFailure},
}

// ClassOf returns the class of a code.
func ClassOf(code codes.Code) Class {
	for _, c := range Classes {
		if c.Code == code {
			return c
		}
	}
	return Class{code, "failure", ExitFailure}
}
