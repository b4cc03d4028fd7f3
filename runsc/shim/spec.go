package shim

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Beginnings of the annotations by which gVisor lets a workload save its own sandbox, as a whole or
// its files alone (runsc/boot/restore.go, fscheckpoint.go). A pod may enable either; what names a
// place on the node is the agent's to set: a pod could have files written anywhere by it, as root.
const (
	wholePrefix = "dev.gvisor.internal.checkpoint."
	filesPrefix = "dev.gvisor.internal.fscheckpoint."
)

// The ends of those annotations.
const (
	saveEnable      = "enable"
	savePath        = "path"
	saveResume      = "resume"
	saveCompression = "compression"
	saveDirect      = "direct"
	savePaths       = "paths"
	saveCUDA        = "cuda-checkpoint-path"
)

// forbidden are annotations that no pod may have, beside all but one of those that begin with
// filesPrefix.
var forbidden = []string{
	wholePrefix + savePath, wholePrefix + saveResume, wholePrefix + saveCompression, wholePrefix + saveDirect,
	wholePrefix + saveCUDA,
}

func specPath(bundle string) string { return filepath.Join(bundle, "config.json") }

// saves reports whether processes of the pod may have its sandbox saved, by the annotations that
// begin so.
func (p pod) saves(prefix string) bool { return p.annotations[prefix+saveEnable] == "true" }

// annotate takes what is forbidden out of the annotations of a bundle's spec, and puts others in.
// The file is left alone if that changes nothing.
func annotate(bundle string, others map[string]string) error {
	return rewrite(bundle, "annotations", func(was map[string]string) (map[string]string, bool) {
		now := maps.Clone(was)
		if now == nil {
			now = make(map[string]string)
		}
		maps.DeleteFunc(now, func(name, _ string) bool { return isForbidden(name) })
		maps.Copy(now, others)
		return now, !maps.Equal(now, was)
	})
}

// withoutTerminal takes the terminal out of a bundle's spec. The process then has the standard streams
// that runsc start has.
func withoutTerminal(bundle string) error {
	return rewrite(bundle, "process", func(process map[string]json.RawMessage) (map[string]json.RawMessage, bool) {
		delete(process, "terminal")
		return process, process != nil
	})
}

// rewrite changes one field of a bundle's spec by f, which reports whether it has changed anything. The
// rest stays as it is.
func rewrite[T any](bundle, field string, f func(T) (T, bool)) error {
	path := specPath(bundle)
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read OCI spec: %w", err)
	}
	var spec map[string]json.RawMessage
	var value T
	if err = json.Unmarshal(data, &spec); err == nil && len(spec[field]) > 0 {
		err = json.Unmarshal(spec[field], &value)
	}
	if err != nil {
		return fmt.Errorf("read OCI spec %s: %w", path, err)
	}
	value, changed := f(value)
	if !changed {
		return nil
	}
	if spec[field], err = json.Marshal(value); err != nil {
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
	if strings.HasPrefix(name, filesPrefix) {
		return name != filesPrefix+saveEnable
	}
	return slices.Contains(forbidden, name)
}
