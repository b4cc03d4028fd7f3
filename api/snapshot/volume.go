package snapshot

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// Limits of what a snapshot notes of volumes.
const (
	MaxVolumes     = 1000
	MaxVolumeFiles = 4096    // of all volumes together
	MaxVolumePaths = 1 << 20 // bytes of all paths of files together
	maxVolumeText  = 4096    // bytes of each text of a volume
)

// Volume is what a snapshot notes of a volume that is not part of it, to recognize whether the volume has changed
// since.
type Volume struct {
	Host      string `json:"host"`      // path on the node, clean and absolute
	Container string `json:"container"` // one that mounts it
	Path      string `json:"path"`      // where that container mounts it
	// Files are those that the pod may have changed, as they were during the pause.
	Files []VolumeFile `json:"files,omitempty"`
	// Unknown says why a change of the volume may go unnoticed. Empty: it does not.
	Unknown string `json:"unknown,omitempty"`
}

// VolumeFile is a regular file of a volume.
type VolumeFile struct {
	Path     string `json:"path"`     // relative to the volume; ".": the volume is that file
	Size     int64  `json:"size"`     // bytes
	Modified int64  `json:"modified"` // nanoseconds since 1970
}

// String names the volume as the pod's owner knows it.
func (v *Volume) String() string {
	return fmt.Sprintf("%.200s of container %.63s", v.Path, v.Container)
}

// Time returns when the file was modified.
func (f *VolumeFile) Time() time.Time { return time.Unix(0, f.Modified).UTC() }

// errVolumes is the kind of error of notes that no agent has written.
var errVolumes = errors.New("the notes of its volumes are not valid")

// CheckVolumes returns an error unless an agent may have noted these volumes. It bounds them, and no path leads out of
// its volume.
func CheckVolumes(volumes []Volume) error {
	files, paths := 0, 0
	for i := range volumes {
		v := &volumes[i]
		files += len(v.Files)
		if i >= MaxVolumes || files > MaxVolumeFiles {
			return fmt.Errorf("%w: more than %d volumes, or %d files", errVolumes, MaxVolumes, MaxVolumeFiles)
		}
		if max(len(v.Host), len(v.Container), len(v.Path), len(v.Unknown)) > maxVolumeText {
			return fmt.Errorf("%w: a text of volume %d is too long", errVolumes, i)
		}
		if !filepath.IsAbs(v.Host) || filepath.Clean(v.Host) != v.Host {
			return fmt.Errorf("%w: path %.80q on the node", errVolumes, v.Host)
		}
		for _, f := range v.Files {
			paths += len(f.Path)
			if !filepath.IsLocal(f.Path) || filepath.Clean(f.Path) != f.Path || f.Size < 0 {
				return fmt.Errorf("%w: file %.80q of %d bytes", errVolumes, f.Path, f.Size)
			}
		}
	}
	if paths > MaxVolumePaths {
		return fmt.Errorf("%w: %d bytes of paths", errVolumes, paths)
	}
	return nil
}
