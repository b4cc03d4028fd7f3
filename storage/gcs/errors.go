package gcs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"

	gcs "cloud.google.com/go/storage"
	"google.golang.org/api/googleapi"

	"diapause.dev/storage"
)

// classify adds to an error of the client the kind that a Backend gives it.
func classify(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if kind := kindOf(err); kind != nil && !errors.Is(err, kind) {
		return fmt.Errorf("%w: %w", kind, err)
	}
	return err
}

func kindOf(err error) error {
	var api *googleapi.Error
	var network net.Error
	var transport *url.Error
	switch {
	case errors.Is(err, gcs.ErrBucketNotExist):
		return storage.ErrUnavailable // the store, not an object of it
	case errors.Is(err, gcs.ErrObjectNotExist):
		return storage.ErrNotFound
	case errors.As(err, &api):
		return kindOfStatus(api.Code)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return storage.ErrTruncated
	case errors.As(err, &network), errors.As(err, &transport):
		return storage.ErrUnavailable
	}
	return nil
}

func kindOfStatus(code int) error {
	switch {
	case code == http.StatusNotFound:
		return storage.ErrNotFound
	case code == http.StatusPreconditionFailed:
		return storage.ErrExists
	case code == http.StatusRequestedRangeNotSatisfiable:
		return storage.ErrTruncated
	case code == http.StatusInsufficientStorage:
		return storage.ErrNoSpace
	case code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code >= 500:
		return storage.ErrUnavailable
	}
	return nil
}
