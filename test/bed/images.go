package bed

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"

	"diapause.dev/test/images"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// writeImages returns the path of an archive of the test images, which it writes once.
var writeImages = sync.OnceValues(func() (string, error) {
	path := filepath.Join(tmpDir, "images.tar")
	f, err := os.Create(path)
	if err != nil {
		return "", fmt.Errorf("bed: %w", err)
	}
	if err := errors.Join(images.Write(f, here.Bin), f.Close()); err != nil {
		return "", fmt.Errorf("bed: %w", err)
	}
	return path, nil
})

// testImages are the images that a bed's containerd has at first, by name with their digests. Nil: no bed of this
// program has been started. A program has one bed at a time, so nothing guards it.
var testImages map[string]string

// keepImages gives containerd the test images and no others. Its directory outlives the beds of a program, so only the
// first import takes long. What a test has done to the images is seen by what containerd has, however that was done:
// it is undone here.
func (c *Containerd) keepImages(ctx context.Context) error {
	have, err := c.listImages(ctx)
	if err != nil || testImages != nil && maps.Equal(have, testImages) {
		return err
	}
	if err := c.removeImages(ctx, have); err != nil {
		return err
	}
	if err := c.importImages(ctx); err != nil {
		return err
	}
	if testImages == nil {
		testImages, err = c.listImages(ctx)
		return err
	}
	return Until(ctx, func() error {
		have, err := c.listImages(ctx)
		if err == nil && !maps.Equal(have, testImages) {
			err = fmt.Errorf("bed: containerd has the images %v, not %v", have, testImages)
		}
		return err
	})
}

// importImages gives containerd the test images, and returns when pods can use them: the CRI hears of them by events.
func (c *Containerd) importImages(ctx context.Context) error {
	archive, err := writeImages()
	if err != nil {
		return err
	}
	if err := c.Import(ctx, archive); err != nil {
		return err
	}
	return Until(ctx, func() error {
		have, err := c.listImages(ctx)
		for _, name := range []string{images.Pause, images.Busybox, images.Workload} {
			if have[name] == "" && err == nil {
				err = fmt.Errorf("bed: containerd has no image %s", name)
			}
		}
		return err
	})
}

// listImages returns the images that containerd has for pods, by name with their digests. The digest is the name of
// one that has no other.
func (c *Containerd) listImages(ctx context.Context) (map[string]string, error) {
	list, err := c.images.ListImages(ctx, &cri.ListImagesRequest{})
	if err != nil {
		return nil, fmt.Errorf("bed: list images: %w", err)
	}
	have := map[string]string{}
	for _, image := range list.Images {
		names := image.RepoTags
		if len(names) == 0 {
			names = []string{image.Id}
		}
		for _, name := range names {
			have[name] = image.Id
		}
	}
	return have, nil
}

// removeImages removes images by their names.
func (c *Containerd) removeImages(ctx context.Context, have map[string]string) error {
	for name := range have {
		remove := &cri.RemoveImageRequest{Image: &cri.ImageSpec{Image: name}}
		if _, err := c.images.RemoveImage(ctx, remove); err != nil {
			return fmt.Errorf("bed: remove image %s: %w", name, err)
		}
	}
	return nil
}
