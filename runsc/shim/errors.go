package shim

import (
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"google.golang.org/grpc/status"
)

// isNotFound reports whether an answer of a service, gVisor's or ours, says that there is no such container.
func isNotFound(err error) bool { return errdefs.IsNotFound(errgrpc.ToNative(errgrpc.ToGRPC(err))) }

// maxRuntimeError bounds how much of an error of runsc is reported, in bytes.
const maxRuntimeError = 600

// unsuccessful is what gVisor's task service puts between the path of runsc and runsc's own error.
const unsuccessful = "did not terminate successfully: "

// trimStack shortens an error of gVisor so that people can read it, and keeps its kind. When a save or a load fails,
// gVisor appends a goroutine's stack or a map of all files, and puts the path of runsc before it. The log has all that.
func trimStack(err error) error {
	if _, ok := status.FromError(err); ok {
		err = errgrpc.ToNative(err)
	}
	text := err.Error()
	if _, why, ok := strings.Cut(text, unsuccessful); ok {
		text = why
	}
	for _, end := range []string{"\ngoroutine ", ", map: map["} {
		text, _, _ = strings.Cut(text, end)
	}
	if n := len(text); n > maxRuntimeError {
		text = text[:maxRuntimeError/2] + " [...] " + text[n-maxRuntimeError/2:]
	}
	if text == err.Error() {
		return err
	}
	return &shortened{strings.ToValidUTF8(strings.TrimRight(text, ": \n"), ""), err}
}

// shortened is an error with less text.
type shortened struct {
	text string
	error
}

// Error implements error.
func (s *shortened) Error() string { return s.text }

// Unwrap returns the error with its full text.
func (s *shortened) Unwrap() error { return s.error }
