// Package requests keeps a directory for each request under way. The directory holds what a sidecar, and the next
// agent, must know about the request.
package requests

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"diapause.dev/agent/errkind"
)

// ErrUnknown is the kind of error for a sidecar whose request nobody waits for.
var ErrUnknown = errors.New("no such request: it has ended, or its token is wrong")

// Dir is the directory that contains one directory for each request. It must not survive a reboot.
type Dir string

// Path returns the directory of a request whose ID comes from this agent.
func (d Dir) Path(request string) string { return filepath.Join(string(d), request) }

// File returns the path of a file of a request. The ID may come from another process. If it is not a valid name of a
// directory, the error is of kind errkind.ErrInvalid.
func (d Dir) File(request, name string) (string, error) {
	if !filepath.IsLocal(request) || filepath.Base(request) != request || request == "." {
		return "", fmt.Errorf("%w: request %.40q", errkind.ErrInvalid, request)
	}
	return filepath.Join(string(d), request, name), nil
}

// All returns the requests that have a directory.
func (d Dir) All() ([]string, error) { return d.OlderThan(0) }

// OlderThan returns the requests whose directories have not changed for at least that long.
func (d Dir) OlderThan(age time.Duration) (requests []string, err error) {
	entries, err := os.ReadDir(string(d))
	for _, e := range entries {
		if fi, err := e.Info(); err == nil && time.Since(fi.ModTime()) >= age {
			requests = append(requests, e.Name())
		}
	}
	return requests, err
}

// Remove removes the directory of a request.
func (d Dir) Remove(request string) error { return os.RemoveAll(d.Path(request)) }

// NewID returns n random bytes in hex, for the ID of a request or for its secret token.
func NewID(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails
	return hex.EncodeToString(b)
}
