package cri

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
)

// ErrUnsupported is the kind of error for a containerd that Diapause does not work with.
var ErrUnsupported = errors.New("containerd 1.x is not supported")

// ErrOutdated is the kind of error for a containerd that lets an image run commands on the node (CVE-2026-53488).
var ErrOutdated = errors.New("an image can run commands on the node (CVE-2026-53488)")

// numbers matches a version of containerd. Debian's have no "v". What follows the numbers is a distribution's.
var numbers = regexp.MustCompile(`^containerd v?(\d+)\.(\d+)\.(\d+)(.*)$`)

// repaired has, for each line 2.x that had it, the first version without CVE-2026-53488. In 2.0 it is not repaired.
var repaired = map[int]int{0: math.MaxInt, 1: 9, 2: 5, 3: 2}

const advice = "upgrade containerd to 2.1.9, 2.2.5, 2.3.2 or newer of its line"

// CheckVersion checks a version as Daemon.Version returns it. If Diapause does not work with it, the error is of kind
// ErrUnsupported; if it is outdated, of kind ErrOutdated. Both say what to install. A distribution may have repaired a
// version that it calls by an old number: then err is nil, and doubt says so.
func CheckVersion(version string) (doubt string, err error) {
	m := numbers.FindStringSubmatch(version)
	if m == nil {
		return "", nil
	}
	if m[1] == "1" {
		return "", fmt.Errorf("%s: %w: %s", version, ErrUnsupported, advice)
	}
	line, _ := strconv.Atoi(m[2])
	patch, _ := strconv.Atoi(m[3])
	first, ok := repaired[line]
	switch {
	case m[1] != "2" || !ok || patch >= first:
		return "", nil
	case m[4] != "":
		return fmt.Sprintf("unless its distribution has repaired that, %v: %s", ErrOutdated, advice), nil
	}
	return "", fmt.Errorf("%s: %w: %s", version, ErrOutdated, advice)
}
