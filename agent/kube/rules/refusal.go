package rules

import (
	"errors"
	"fmt"
	"strings"
)

// Refusal says why something that was asked for is not done, in words for who asked.
type Refusal struct{ message string }

func (r *Refusal) Error() string { return r.message }

// Refuse returns a *Refusal.
func Refuse(format string, args ...any) error {
	return &Refusal{message: fmt.Sprintf(format, args...)}
}

// Refused reports whether err is a refusal, so that trying again is of no use.
func Refused(err error) bool {
	refusal := new(Refusal)
	return errors.As(err, &refusal)
}

// ErrPending: what was asked for is not possible yet, and may be soon without anybody's doing.
var ErrPending = errors.New("not yet")

// maxMessage bounds a message of a condition or of an event, in bytes; the API server refuses
// events of more than 1,024.
const maxMessage = 1000

// Message makes text fit for a condition or an event.
func Message(text string) string {
	text = strings.ToValidUTF8(text, "?")
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage-len("…")], "") + "…"
}
