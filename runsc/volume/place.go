package volume

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"diapause.dev/runsc/kubelet"
)

// Parts of a snapshot that hold a volume have names with this prefix and suffix.
const (
	partPrefix = "volume-"
	partSuffix = ".tar"
)

// Part returns the name of the part of a snapshot that holds a volume.
func Part(name string) string { return partPrefix + name + partSuffix }

// OfPart returns the name of the volume that a part of a snapshot holds. If the part holds no volume, ok is false. If
// the part has a volume's prefix but no valid name of a volume, that is an error.
func OfPart(part string) (name string, ok bool, err error) {
	name, ok = strings.CutPrefix(part, partPrefix)
	if !ok {
		return "", false, nil
	}
	name, ok = strings.CutSuffix(name, partSuffix)
	if !ok || !kubelet.ValidVolume(name) {
		return "", false, fmt.Errorf("part %.80q of the snapshot does not name a valid volume", part)
	}
	return name, true, nil
}

// payloadPrefix begins the names of the parts of a snapshot that hold a directory of a volume which the kubelet writes.
const payloadPrefix = "payload-"

// PayloadPart returns the name of the part of a snapshot that holds a directory which the kubelet has written.
func PayloadPart(p kubelet.Payload) string { return payloadPrefix + p.Volume + p.Dir + partSuffix }

// OfPayloadPart returns the directory that a part of a snapshot holds. If the part holds none, ok is false. If the part
// has the prefix but no valid name, that is an error.
func OfPayloadPart(part string) (p kubelet.Payload, ok bool, err error) {
	name, ok := strings.CutPrefix(part, payloadPrefix)
	if !ok {
		return p, false, nil
	}
	name, ok = strings.CutSuffix(name, partSuffix)
	volume, dir, _ := strings.Cut(name, "..")
	if p, err = kubelet.ParsePayload(volume + "/.." + dir); !ok || err != nil {
		return p, false, fmt.Errorf("part %.80q of the snapshot does not name a valid volume", part)
	}
	return p, true, nil
}

// Open opens the directory of a volume to be saved. Root is a path to the root of the node's file system: symbolic
// links on the way to dir are resolved below it.
func Open(root, dir string) (*os.File, error) {
	at, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the node's root %s: %w", root, err)
	}
	defer unix.Close(at)
	fd, err := unix.Openat2(at, dir, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	return os.NewFile(uintptr(fd), dir), nil
}
