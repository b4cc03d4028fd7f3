package azblob

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/bloberror"

	"diapause.dev/storage"
	"diapause.dev/storage/bucket"
)

// kinds are those of answers whose status does not tell. All other answers with status 409 or 412 are about something
// that may pass, such as a lease.
var kinds = map[bloberror.Code]error{
	bloberror.BlobNotFound:              storage.ErrNotFound,
	bloberror.BlobAlreadyExists:         storage.ErrExists,
	bloberror.ConditionNotMet:           storage.ErrExists,
	bloberror.TargetConditionNotMet:     storage.ErrExists,
	bloberror.UnauthorizedBlobOverwrite: storage.ErrExists,
	bloberror.BlobImmutableDueToPolicy:  storage.ErrDenied,
	bloberror.InvalidAuthenticationInfo: storage.ErrDenied,
	bloberror.AccountIsDisabled:         storage.ErrUnavailable,
	bloberror.MD5Mismatch:               storage.ErrUnavailable,
	bloberror.CRC64Mismatch:             storage.ErrUnavailable,
	bloberror.InvalidBlockList:          storage.ErrUnavailable,
}

// classify adds to the error of a request the kind that Backend requires. ctx is the caller's, without the request's
// time limit.
func classify(ctx context.Context, err error) error { return bucket.Classify(ctx, brief(err), kindOf) }

func kindOf(err error) error {
	answer, answered := errors.AsType[*answerError](err)
	switch {
	case errors.Is(err, bucket.ErrCredentials):
		return storage.ErrDenied
	case answered:
		return answer.kind()
	}
	return bucket.KindOfFailure(err)
}

// answerError is an error that the service has answered with.
type answerError struct {
	method, code, request string
	status                int
}

// brief returns err, but what the service has answered without the text of the answer, which is long and foreign.
func brief(err error) error {
	answer, ok := errors.AsType[*azcore.ResponseError](err)
	if !ok {
		return err
	}
	e := &answerError{code: answer.ErrorCode, status: answer.StatusCode}
	if r := answer.RawResponse; r != nil {
		e.request = r.Header.Get("X-Ms-Request-Id")
		if r.Request != nil {
			e.method = r.Request.Method
		}
	}
	return e
}

func (e *answerError) Error() string {
	s := fmt.Sprintf("%s: the store answers %d", e.method, e.status)
	if e.code != "" {
		s += fmt.Sprintf(" %.80s", oneLine(e.code))
	}
	if e.request != "" {
		s += fmt.Sprintf(", request %.80s", oneLine(e.request))
	}
	return s
}

func (e *answerError) kind() error {
	if kind, known := kinds[bloberror.Code(e.code)]; known {
		return kind
	}
	if e.status == http.StatusPreconditionFailed {
		return storage.ErrUnavailable
	}
	return bucket.KindOfStatus(e.status)
}

// hasCode reports whether the service answered with that code.
func hasCode(err error, code bloberror.Code) bool {
	answer, ok := errors.AsType[*answerError](err)
	return ok && answer.code == string(code)
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
