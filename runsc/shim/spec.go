package shim

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
)

// Annotations by which gVisor lets a workload save its own sandbox (runsc/boot/restore.go,
// fscheckpoint.go). Those that name a place on the node are the agent's to set: a pod could have
// files written anywhere by them, as root.
const (
	annotationWorkloadEnable      = "dev.gvisor.internal.checkpoint.enable"
	annotationWorkloadPath        = "dev.gvisor.internal.checkpoint.path"
	annotationWorkloadResume      = "dev.gvisor.internal.checkpoint.resume"
	annotationWorkloadCompression = "dev.gvisor.internal.checkpoint.compression"
	annotationWorkloadDirect      = "dev.gvisor.internal.checkpoint.direct"
)

// forbidden are the beginnings of annotations that no pod may have.
var forbidden = []string{
	annotationWorkloadPath, annotationWorkloadResume, annotationWorkloadCompression, annotationWorkloadDirect,
	"dev.gvisor.internal.checkpoint.cuda-checkpoint-path",
	"dev.gvisor.internal.fscheckpoint.",
}

func specPath(bundle string) string { return filepath.Join(bundle, "config.json") }

// saves reports whether processes of the pod may have its sandbox saved.
func (p pod) saves() bool { return p.annotations[annotationWorkloadEnable] == "true" }

// annotate takes what is forbidden out of the annotations of a bundle's spec, and puts others in.
// The file is left alone if that changes nothing.
func annotate(bundle string, others map[string]string) error {
	path := specPath(bundle)
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read OCI spec: %w", err)
	}
	var spec map[string]json.RawMessage // all but the annotations stays as it is
	was := make(map[string]string)
	if err = json.Unmarshal(data, &spec); err == nil && len(spec["annotations"]) > 0 {
		err = json.Unmarshal(spec["annotations"], &was)
	}
	if err != nil {
		return fmt.Errorf("read OCI spec %s: %w", path, err)
	}
	now := maps.Clone(was)
	maps.DeleteFunc(now, func(name, _ string) bool { return isForbidden(name) })
	maps.Copy(now, others)
	if maps.Equal(now, was) {
		return nil
	}
	if spec["annotations"], err = json.Marshal(now); err != nil {
		return err
	}
	if data, err = json.Marshal(spec); err != nil {
		return err
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return fmt.Errorf("write OCI spec: %w", err)
	}
	return nil
}

func isForbidden(name string) bool {
	for _, f := range forbidden {
		if name == f || strings.HasSuffix(f, ".") && strings.HasPrefix(name, f) {
			return true
		}
	}
	return false
}
