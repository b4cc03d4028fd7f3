package cri

import (
	"errors"
	"fmt"
	"regexp"
)

// ErrUnsupported is the kind of error for a containerd that Diapause does not work with.
var ErrUnsupported = errors.New("containerd 1.x is not supported")

// unsupported matches the versions of containerd that are not supported. Debian's have no "v".
var unsupported = regexp.MustCompile(`^containerd v?1\.`)

// CheckVersion checks a version as Client.Version returns it. If Diapause does not work with it, the error is of kind
// ErrUnsupported and says what to install.
func CheckVersion(version string) error {
	if !unsupported.MatchString(version) {
		return nil
	}
	return fmt.Errorf("%s: %w: upgrade containerd to 2.1.9, 2.2.5, 2.3.2 or newer of its line", version, ErrUnsupported)
}
