package shim

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"diapause.dev/runsc/annotation"
	"diapause.dev/runsc/kubelet"
)

// Prefixes of the annotations by which gVisor lets a workload save its own sandbox, as a whole or its files alone
// (runsc/boot/restore.go, fscheckpoint.go). A pod may enable either. Only the agent may set those that name a place
// on the node: with them a pod could have files written anywhere, as root.
const (
	wholePrefix = "dev.gvisor.internal.checkpoint."
	filesPrefix = "dev.gvisor.internal.fscheckpoint."
)

// Suffixes of those annotations.
const (
	saveEnable      = "enable"
	savePath        = "path"
	saveResume      = "resume"
	saveCompression = "compression"
	savePaths       = "paths"
)

// maxDropped bounds how many dropped annotations one warning names.
const maxDropped = 20

func specPath(bundle string) string { return filepath.Join(bundle, "config.json") }

// saves reports whether the pod's processes may save its sandbox, according to the annotations with that prefix.
func (p pod) saves(prefix string) bool { return p.annotations[prefix+saveEnable] == "true" }

// annotateFor prepares the annotations of the bundle of a pod's container for runsc: it drops those of gVisor that the
// pod's author may not set, and adds others.
func annotateFor(p pod, bundle string, others map[string]string) error {
	dropped, err := annotate(bundle, others, func(name string) bool { return kubelet.HasVolume(p.uid, name) })
	if n := len(dropped); n > 0 {
		slog.Warn("annotations are kept from runsc, because a pod may not set them", "sandbox", p.sandbox, "count", n,
			"annotations", fmt.Sprintf("%.200q", dropped[:min(n, maxDropped)]))
	}
	return err
}

// annotate drops those of gVisor's annotations from a bundle's spec that no pod may set, and adds others. It returns
// the names that it has dropped. If nothing changes, it does not write the file. IsVolume reports whether the pod has a
// volume.
func annotate(bundle string, others map[string]string, isVolume func(name string) bool) (dropped []string, err error) {
	err = rewrite(bundle, "annotations", func(was map[string]string) (map[string]string, bool) {
		now := maps.Clone(was)
		if now == nil {
			now = make(map[string]string)
		}
		for _, name := range slices.Sorted(maps.Keys(was)) {
			if annotation.OfGVisor(name) && !annotation.Allowed(name, was[name], isVolume) {
				delete(now, name)
				dropped = append(dropped, name)
			}
		}
		maps.Copy(now, others)
		return now, !maps.Equal(now, was)
	})
	return dropped, err
}

// withoutTerminal removes the terminal from a bundle's spec. The process then gets the standard streams of runsc
// start.
func withoutTerminal(bundle string) error {
	return rewrite(bundle, "process", func(process map[string]json.RawMessage) (map[string]json.RawMessage, bool) {
		delete(process, "terminal")
		return process, process != nil
	})
}

// rewrite changes one field of a bundle's spec by f, and keeps the rest. F reports whether it has changed anything.
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
