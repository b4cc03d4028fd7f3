package s3

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/minio/minio-go/v7"

	"diapause.dev/storage"
	"diapause.dev/storage/bucket"
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
func classify(ctx context.Context, err error) error { return bucket.Classify(ctx, err, kindOf) }

func kindOf(err error) error {
	answer, answered := errors.AsType[minio.ErrorResponse](err)
	switch {
	case errors.Is(err, bucket.ErrCredentials):
		return storage.ErrDenied
	case answered:
		return kindOfAnswer(answer)
	}
	return bucket.KindOfFailure(err)
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
	return bucket.KindOfStatus(e.StatusCode)
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
