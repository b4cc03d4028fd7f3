package rules

import (
	"errors"
	"fmt"
	"strings"
)

// Refusal says why a request is refused, in words for the one who made it.
type Refusal struct{ message string }

func (r *Refusal) Error() string { return r.message }

// Refuse returns a *Refusal.
func Refuse(format string, args ...any) error {
	return &Refusal{message: fmt.Sprintf(format, args...)}
}

// Refused reports whether err is a refusal: to retry is of no use.
func Refused(err error) bool {
	refusal := new(Refusal)
	return errors.As(err, &refusal)
}

// ErrPending means that something is not possible yet, and may become possible soon by itself.
var ErrPending = errors.New("not yet")

// maxMessage bounds the message of a condition or an event, in bytes. The API server refuses events with more than
// 1,024.
const maxMessage = 1000

// Message makes a text valid as the message of a condition or an event, and cuts it to maxMessage.
func Message(text string) string {
	text = strings.ToValidUTF8(text, "?")
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage-len("…")], "") + "…"
}
