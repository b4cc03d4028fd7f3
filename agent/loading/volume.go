package loading

import (
	"diapause.dev/runsc"
	"diapause.dev/runsc/kubelet"
	"diapause.dev/runsc/volume"
)

// IsKernel reports whether a file of an image has nothing of the memory or of volumes.
func IsKernel(file string) bool { return file != runsc.PagesFile && !isVolume(file) }

// isVolume reports whether a part of a snapshot holds a volume, or a part of one.
func isVolume(part string) bool {
	name, err := VolumeOf(part)
	return err == nil && name != ""
}

// VolumeOf returns the name under which a shim asks for a part of a snapshot: that of a volume, or of a directory which
// the kubelet has written. Empty: the part holds neither.
func VolumeOf(part string) (name string, err error) {
	name, ok, err := volume.OfPart(part)
	if ok || err != nil {
		return name, err
	}
	p, ok, err := volume.OfPayloadPart(part)
	if !ok || err != nil {
		return "", err
	}
	return p.String(), nil
}

// PartOf is the inverse of VolumeOf.
func PartOf(name string) string {
	if p, err := kubelet.ParsePayload(name); err == nil {
		return volume.PayloadPart(p)
	}
	return volume.Part(name)
}
