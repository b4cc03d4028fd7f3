package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"

	"github.com/minio/minio-go/v7"

	"diapause.dev/storage"
)

// Codes of errors that a status does not tell apart.
const (
	codeArchived = "InvalidObjectState"
	codeConflict = "ConditionalRequestConflict"
	codeExists   = "PreconditionFailed"
	codeFull     = "XMinioStorageFull"
	codeNoKey    = "NoSuchKey"
	codeNoUpload = "NoSuchUpload"
	codeQuota    = "QuotaExceeded"
	codeSkewed   = "RequestTimeTooSkewed"
)

// deniedCodes are codes of refused credentials that come with other statuses than one would think.
var deniedCodes = []string{"AccessDenied", "ExpiredToken", "InvalidAccessKeyId", "InvalidToken", "XAdminUserNotFound"}

// classify adds to the error of a request the kind that Backend requires. ctx is the caller's, without the request's
// time limit.
func classify(ctx context.Context, err error) error {
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

func kindOf(err error) error {
	var network net.Error
	var transport *url.Error
	answer, answered := errors.AsType[minio.ErrorResponse](err)
	switch {
	case errors.Is(err, errCredentials):
		return storage.ErrDenied
	case answered:
		return kindOfAnswer(answer)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return storage.ErrUnavailable
	case errors.As(err, &network), errors.As(err, &transport):
		return storage.ErrUnavailable
	}
	return nil
}

// kindOfAnswer returns the kind of an error from the service. A completion may fail with status 200.
func kindOfAnswer(e minio.ErrorResponse) error {
	switch {
	case e.Code == codeExists:
		return storage.ErrExists
	case e.Code == codeNoKey:
		return storage.ErrNotFound
	case e.Code == codeSkewed, e.Code == codeArchived:
		return storage.ErrUnavailable // and no fault of the credentials
	case e.Code == codeQuota, e.Code == codeFull:
		return storage.ErrNoSpace
	case slices.Contains(deniedCodes, e.Code):
		return storage.ErrDenied
	}
	return kindOfStatus(e.StatusCode)
}

func kindOfStatus(code int) error {
	switch {
	case code == http.StatusUnauthorized, code == http.StatusForbidden:
		return storage.ErrDenied
	case code == http.StatusPreconditionFailed:
		return storage.ErrExists
	case code == http.StatusRequestedRangeNotSatisfiable:
		return storage.ErrTruncated
	case code == http.StatusInsufficientStorage:
		return storage.ErrNoSpace
	case code == http.StatusNotFound: // of the bucket, or of an upload
		return storage.ErrUnavailable
	case code == http.StatusConflict, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout, code >= 500:
		return storage.ErrUnavailable
	}
	return nil
}

// conflict reports whether the service answered that another request is in the way.
func conflict(err error) bool {
	answer, ok := errors.AsType[minio.ErrorResponse](err)
	return ok && (answer.Code == codeConflict || answer.StatusCode == http.StatusConflict)
}

// hasCode reports whether the service answered with that code.
func hasCode(err error, code string) bool {
	answer, ok := errors.AsType[minio.ErrorResponse](err)
	return ok && answer.Code == code
}
