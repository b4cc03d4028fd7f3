package cri

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// resolver is an image service that knows one image by its reference.
type resolver struct{ criapi.ImageServiceClient }

func (resolver) ImageStatus(_ context.Context, r *criapi.ImageStatusRequest,
	_ ...grpc.CallOption,
) (*criapi.ImageStatusResponse, error) {
	switch r.GetImage().GetImage() {
	case "registry/app@sha256:index":
		return &criapi.ImageStatusResponse{Image: &criapi.Image{Id: "sha256:config"}}, nil
	case "registry/gone@sha256:index":
		return &criapi.ImageStatusResponse{}, nil
	}
	return nil, fmt.Errorf("asked for %v", r)
}

// TestImageDigest: the digest of an image is found in what any version of containerd reports.
func TestImageDigest(t *testing.T) {
	r := &Recorder{images: resolver{}}
	for what, x := range map[string]struct {
		status *criapi.ContainerStatus
		want   string
	}{
		"2.3":              {&criapi.ContainerStatus{ImageId: "sha256:config", ImageRef: "x@sha256:index"}, "sha256:config"},
		"2.1":              {&criapi.ContainerStatus{ImageRef: "sha256:config"}, "sha256:config"},
		"2.1, pulled":      {&criapi.ContainerStatus{ImageRef: "registry/app@sha256:index"}, "sha256:config"},
		"2.1, image gone":  {&criapi.ContainerStatus{ImageRef: "registry/gone@sha256:index"}, ""},
		"nothing is known": {&criapi.ContainerStatus{}, ""},
	} {
		if got, err := r.imageDigest(t.Context(), x.status); err != nil || got != x.want {
			t.Errorf("%s: %q, %v, want %q", what, got, err, x.want)
		}
	}
}
