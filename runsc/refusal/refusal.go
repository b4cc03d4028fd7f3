// Package refusal has how a shim's refusals reach the agent.
//
// Orders about a pod's sleep and about the lease of its pause reach a shim in containerd's call Update. Containerd
// passes an error on as its text and a class of package errdefs. So the shim gives each kind of error a class, and the
// agent gives the class its kind again. Two classes are never used: a shim that does not know the order answers
// InvalidArgument, and Unavailable says that no shim has answered.
package refusal

import (
	"errors"
	"fmt"

	"diapause.dev/runsc/lease"
	"diapause.dev/runsc/sleep"
	"github.com/containerd/errdefs"
)

// Table has the refusals of one kind of order.
type Table []Row

// Row is one kind of error.
type Row struct {
	Kind  error // what the shim has found
	Class error // of package errdefs: what containerd passes on
	Read  error // the kind that the agent gives to Class; nil: none
}

// Sleep has the refusals of orders about a pod's sleep.
var Sleep = Table{
	{sleep.ErrTraffic, errdefs.ErrOutOfRange, sleep.ErrTraffic},
	{sleep.ErrInUse, errdefs.ErrResourceExhausted, sleep.ErrInUse},
	{sleep.ErrUnfit, errdefs.ErrFailedPrecondition, sleep.ErrUnfit},
	{lease.ErrRanOut, errdefs.ErrFailedPrecondition, sleep.ErrUnfit},
	{sleep.ErrInvalid, errdefs.ErrAborted, nil},
}

// Lease has the refusals of requests about the lease of a pause.
var Lease = Table{
	{lease.ErrRanOut, errdefs.ErrFailedPrecondition, lease.ErrRanOut},
	{lease.ErrInvalid, errdefs.ErrAborted, nil},
}

// Tell gives an error of the shim the class of its kind. The first kind that matches counts. An error of no kind stays
// as it is.
func (t Table) Tell(err error) error {
	for _, r := range t {
		if errors.Is(err, r.Kind) {
			return fmt.Errorf("%w: %w", err, r.Class)
		}
	}
	return err
}

// Read gives an error that containerd has passed on the kind that the shim has meant. An error of another class stays
// as it is.
func (t Table) Read(err error) error {
	for _, r := range t {
		if r.Read != nil && errors.Is(err, r.Class) {
			return fmt.Errorf("%w: %w", r.Read, err)
		}
	}
	return err
}
