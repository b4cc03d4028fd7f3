package gcs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/compute/metadata"
	gcs "cloud.google.com/go/storage"
	"google.golang.org/api/googleapi"

	"diapause.dev/storage"
)

// classify adds to an error of the client the kind that Backend requires.
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
		return kindOfAnswer(api)
	case tokenStatus(err) != 0:
		return kindOfToken(tokenStatus(err))
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return storage.ErrTruncated
	case errors.As(err, &network), errors.As(err, &transport):
		return storage.ErrUnavailable
	}
	return nil
}

// kindOfAnswer returns the kind of an error from the service. The service also answers 403 if it is asked too often.
func kindOfAnswer(e *googleapi.Error) error {
	for _, item := range e.Errors {
		if e.Code == http.StatusForbidden && strings.HasSuffix(strings.ToLower(item.Reason), "limitexceeded") {
			return storage.ErrUnavailable
		}
	}
	return kindOfStatus(e.Code)
}

// tokenStatus returns the status with which the token for requests was refused, or 0 if err has another reason.
func tokenStatus(err error) int {
	var token *auth.Error
	var node *metadata.Error
	var none metadata.NotDefinedError
	switch {
	case errors.As(err, &token) && token.Response != nil:
		return token.Response.StatusCode
	case errors.As(err, &node):
		return node.Code
	case errors.As(err, &none):
		return http.StatusNotFound // the node has no identity
	}
	return 0
}

func kindOfToken(code int) error {
	if kind := kindOfStatus(code); kind == storage.ErrUnavailable {
		return kind
	}
	return storage.ErrDenied
}

func kindOfStatus(code int) error {
	switch {
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return storage.ErrDenied
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
