package cri

import (
	"encoding/json"
	"fmt"
	"path"

	"diapause.dev/api/snapshot"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Mount is where a container mounts a file or directory of the node.
type Mount struct{ Container, Path string }

// Mounts returns the mounts of a recorded pod's containers, by path on the node.
func Mounts(p snapshot.Pod) (map[string][]Mount, error) {
	mounts := make(map[string][]Mount)
	for _, c := range p.Containers {
		var config criapi.ContainerConfig
		if err := json.Unmarshal(c.Config, &config); err != nil {
			return nil, fmt.Errorf("decode configuration of container %s: %w", c.Name, err)
		}
		for _, m := range config.Mounts {
			mounts[m.GetHostPath()] = append(mounts[m.GetHostPath()], Mount{c.Name, path.Clean(m.GetContainerPath())})
		}
	}
	return mounts, nil
}
