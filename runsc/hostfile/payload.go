package hostfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"diapause.dev/runsc/kubelet"
)

// Bounds of what a sandbox can hold of volumes that the kubelet writes: directories, and files and directories in them.
const (
	maxPayloads = 64
	maxPieces   = 4096
)

// Payloads are the volumes of a sandbox that the kubelet writes. Close frees them.
type Payloads struct{ finder finder }

// A Payload is what a sandbox holds of one directory that the kubelet has written. Close frees it.
type Payload struct {
	kubelet.Payload
	Pieces map[string]int // descriptors, opened with O_PATH, by their paths in the directory; ".": the directory itself
}

// FindPayloads finds where a sandbox has the volumes that are mounted so. The kubelet must write all of them.
func FindPayloads(s Sandbox, mounts []Mount) (*Payloads, error) {
	p := &Payloads{finder{sandbox: s, mounts: make(map[string]place), fixed: true}}
	node, err := mountsOf(s.Shim)
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		if err := p.finder.addVolume(node, m); err != nil {
			p.Close()
			return nil, err
		}
	}
	for _, process := range s.Processes {
		p.finder.addPlaces(process)
	}
	return p, nil
}

// Close frees the volumes.
func (p *Payloads) Close() { p.finder.Close() }

// Held returns what the sandbox holds of the volumes now. Call it while the sandbox is paused.
func (p *Payloads) Held() (all []*Payload, err error) {
	p.finder.held = 0
	for _, process := range p.finder.sandbox.Processes {
		if all, err = p.addHeld(all, process); err != nil {
			for _, one := range all {
				one.Close()
			}
			return nil, err
		}
	}
	return all, nil
}

// addHeld adds what a process holds.
func (p *Payloads) addHeld(all []*Payload, process string) ([]*Payload, error) {
	numbers, err := descriptors(process)
	if err != nil {
		return all, nil // it has ended
	}
	for _, n := range numbers {
		link, err := os.Readlink(process + "/fd/" + n)
		if err != nil || !strings.Contains(link, "/..") { // spares most of them the rest
			continue
		}
		if all, err = p.addPiece(all, process, n); err != nil {
			return all, err
		}
	}
	return all, nil
}

// addPiece adds what a descriptor is open for, if that is in a directory that the kubelet has written.
func (p *Payloads) addPiece(all []*Payload, process, number string) ([]*Payload, error) {
	fd, err := unix.Open(process+"/fd/"+number, unix.O_PATH|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) { // closed meanwhile
		return all, nil
	}
	if err != nil {
		return all, fmt.Errorf("a file of a volume that the kubelet writes: %w", err)
	}
	one, path, err := p.payloadOf(all, fd)
	if err != nil || one == nil {
		unix.Close(fd)
		return all, err
	}
	if _, known := one.Pieces[path]; known {
		unix.Close(fd)
		return all, nil
	}
	if len(one.Pieces) == 0 {
		all = append(all, one)
	}
	one.Pieces[path] = fd
	if p.finder.held++; len(all) > maxPayloads || p.finder.held > maxPieces {
		return all, fmt.Errorf("volume %s: the pod holds files of more than %d versions of volumes that the kubelet writes, "+
			"or more than %d files of them", one.Volume, maxPayloads, maxPieces)
	}
	return all, nil
}

// payloadOf returns the directory that a file is in, and its path in there. The directory may be new, or nil if the
// kubelet has not written it.
func (p *Payloads) payloadOf(all []*Payload, fd int) (one *Payload, path string, err error) {
	id, _ := describe("/proc/self", fmt.Sprint(fd))
	at, ok := p.finder.mounts[id]
	if !ok {
		return nil, "", nil
	}
	link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return nil, "", err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, "", err
	}
	if st.Nlink == 0 {
		link = strings.TrimSuffix(link, " (deleted)")
	}
	name, path, ok := kubelet.InPayload(within(link, at.at))
	if !ok {
		return nil, "", nil
	}
	found := kubelet.Payload{Volume: filepath.Base(at.volume.Host), Dir: name}
	for _, one := range all {
		if one.Payload == found {
			return one, path, nil
		}
	}
	return &Payload{Payload: found, Pieces: make(map[string]int)}, path, nil
}

// Close frees the files.
func (p *Payload) Close() {
	for _, fd := range p.Pieces {
		unix.Close(fd)
	}
	p.Pieces = nil
}
