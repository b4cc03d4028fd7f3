package cri

import (
	"context"
	"fmt"
	"strings"

	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Image returns the name of a container, and the digest of the configuration of the image that it was made from. A tag
// may have moved since. The digest is empty if containerd does not know the image any more.
func (r *Recorder) Image(ctx context.Context, containerID string) (name, digest string, err error) {
	answer, err := r.runtime.ContainerStatus(ctx, &criapi.ContainerStatusRequest{ContainerId: containerID})
	if err == nil {
		digest, err = r.imageDigest(ctx, answer.GetStatus())
	}
	if err != nil {
		return "", "", fmt.Errorf("image of container %s: %w", containerID, native(err))
	}
	return answer.GetStatus().GetMetadata().GetName(), digest, nil
}

// imageDigest returns the digest of the image that a container was made from. Containerd 2.1 and 2.2 report no such
// digest, and if the image was pulled, a reference by the digest of its index or manifest. Two of these may stand for
// one image.
func (r *Recorder) imageDigest(ctx context.Context, s *criapi.ContainerStatus) (string, error) {
	if id := s.GetImageId(); id != "" {
		return id, nil
	}
	ref := s.GetImageRef()
	if ref == "" || strings.HasPrefix(ref, "sha256:") {
		return ref, nil
	}
	answer, err := r.images.ImageStatus(ctx, &criapi.ImageStatusRequest{Image: &criapi.ImageSpec{Image: ref}})
	return answer.GetImage().GetId(), err
}
