package localv1

import "google.golang.org/grpc/codes"

// The codes that tell a shim what to do after an error of ReportRestore or RetryWake.
const (
	// CodeAgain says that the agent cannot do it now: the shim asks again.
	CodeAgain = codes.Aborted
	// CodeNever, of RetryWake, says that no other restore can succeed: the pod ends.
	CodeNever = codes.FailedPrecondition
)
