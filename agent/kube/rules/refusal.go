package rules

import (
	"errors"
	"fmt"
	"regexp"
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

// jargon is what the owner of a pod cannot use, with what is said instead: the codes that gRPC puts before an error,
// what containerd's client says of a shim that has ended, and the stacks and lists of files that gVisor appends.
// The log has the text as it was.
var jargon = []struct {
	what    *regexp.Regexp
	instead string
}{
	{regexp.MustCompile(`(?s)\n+goroutine \d+ .*`), ""},
	{regexp.MustCompile(`(?s), map: map\[.*`), ""},
	{regexp.MustCompile(`(rpc error: code = \w+ desc = )+`), ""},
	{regexp.MustCompile(`connection error: desc = "(?:transport: )?([^"]*)"`), "$1"},
	{
		regexp.MustCompile(`\berror reading (from server|server preface): (EOF|\S+ \S+ \S+: connection reset by peer|` +
			`connection reset by peer)`),
		"the connection was closed",
	},
	{regexp.MustCompile(`\bflipcall connection shutdown( broken pipe)?\b`), "the sidecar has ended"},
	{regexp.MustCompile(`\bMemoryFile 0x[0-9a-f]+\b`), "MemoryFile"}, // an address in the sentry
	{regexp.MustCompile(`\bttrpc: (closed|server closed)\b`), "the connection to its shim was closed"},
	{regexp.MustCompile(`\b([0-9a-f]{13})[0-9a-f]{51}\b`), "$1"}, // an id, as crictl shows it
	{regexp.MustCompile(`[\s\p{C}]+`), " "},
}

// Message makes a text valid as the message of a condition or an event, in words for the owner of its object, and
// cuts it to maxMessage.
func Message(text string) string {
	text = strings.ToValidUTF8(text[:min(len(text), maxRaw)], "?")
	for _, j := range jargon {
		text = j.what.ReplaceAllString(text, j.instead)
	}
	text = strings.TrimSpace(text)
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage-len("…")], "") + "…"
}

// maxRaw bounds what of a text is looked at, in bytes.
const maxRaw = 64 << 10
