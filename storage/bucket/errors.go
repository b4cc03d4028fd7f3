package bucket

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	"diapause.dev/storage"
)

// Classify adds to the error of a request the kind that storage.Backend requires, according to kindOf, which returns
// nil for an error of no kind. ctx is the caller's, without the request's time limit.
func Classify(ctx context.Context, err error, kindOf func(error) error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("%w: %w", storage.ErrUnavailable, errSlow) // the request's limit, not the caller's
	}
	if kind := kindOf(err); kind != nil && !errors.Is(err, kind) {
		return fmt.Errorf("%w: %w", kind, err)
	}
	return err
}

// KindOfFailure returns the kind of an error for a request without an answer, or nil.
func KindOfFailure(err error) error {
	var network net.Error
	var transport *url.Error
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return storage.ErrUnavailable
	case errors.As(err, &network), errors.As(err, &transport):
		return storage.ErrUnavailable
	}
	return nil
}

// KindOfStatus returns the kind of an answer of which nothing is known but its status, or nil.
func KindOfStatus(code int) error {
	switch {
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return storage.ErrDenied
	case code == http.StatusPreconditionFailed:
		return storage.ErrExists
	case code == http.StatusRequestedRangeNotSatisfiable:
		return storage.ErrTruncated
	case code == http.StatusInsufficientStorage:
		return storage.ErrNoSpace
	case code == http.StatusNotFound, code/100 == 3: // of the bucket, or of an upload; or of another server
		return storage.ErrUnavailable
	case code == http.StatusConflict, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code >= 500:
		return storage.ErrUnavailable
	}
	return nil
}
