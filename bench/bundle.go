package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	specs "github.com/opencontainers/runtime-spec/specs-go"

	"diapause.dev/test/bed"
)

// taskDir is where containerd keeps the bundles of running containers.
const taskDir = "/run/containerd/io.containerd.runtime.v2.task/k8s.io"

// Annotations in the spec of a pod's containers.
const (
	annotationSandboxID    = "io.kubernetes.cri.sandbox-id"
	annotationCgroupParent = "dev.gvisor.spec.cgroup-parent"
)

// bundle holds the OCI bundles of a pod's two containers, which need nothing of containerd any more.
type bundle struct {
	dir       string
	root, app *specs.Spec
}

// copyBundle makes a bundle in dir from a running pod's.
func copyBundle(pod *bed.Pod, dir string) (b *bundle, err error) {
	b = &bundle{dir: dir}
	if b.root, err = copyContainer(pod.ID, b.rootDir()); err != nil {
		return nil, err
	}
	b.app, err = copyContainer(pod.Containers[0].ID, b.appDir())
	return b, err
}

func (b *bundle) rootDir() string { return filepath.Join(b.dir, "root") }
func (b *bundle) appDir() string  { return filepath.Join(b.dir, "app") }

// write writes the bundles' configurations for a sandbox of that id in a network namespace.
func (b *bundle) write(sandbox, network string) error {
	for dir, spec := range map[string]*specs.Spec{b.rootDir(): b.root, b.appDir(): b.app} {
		spec.Annotations[annotationSandboxID] = sandbox
		for i, ns := range spec.Linux.Namespaces {
			if ns.Type == specs.NetworkNamespace {
				spec.Linux.Namespaces[i].Path = network
			}
		}
		data, err := json.Marshal(spec)
		if err != nil {
			return fmt.Errorf("bundle: %w", err)
		}
		if err := os.WriteFile(filepath.Join(dir, "config.json"), data, 0o600); err != nil {
			return fmt.Errorf("bundle: %w", err)
		}
	}
	return nil
}

// copyContainer copies a running container's root file system and what is mounted in it from the
// node to dir, and returns its spec, changed to use the copies, namespaces of its own, and no cgroup.
func copyContainer(id, dir string) (*specs.Spec, error) {
	from := filepath.Join(taskDir, id)
	data, err := os.ReadFile(filepath.Join(from, "config.json"))
	if err != nil {
		return nil, fmt.Errorf("bundle: %w", err)
	}
	var spec specs.Spec
	if err := json.Unmarshal(data, &spec); err != nil {
		return nil, fmt.Errorf("bundle of %s: %w", id, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("bundle: %w", err)
	}
	spec.Root.Path = filepath.Join(dir, "rootfs")
	if err := copyTree(filepath.Join(from, "rootfs"), spec.Root.Path); err != nil {
		return nil, err
	}
	for i, m := range spec.Mounts {
		if m.Type != "bind" {
			continue
		}
		spec.Mounts[i].Source = filepath.Join(dir, strconv.Itoa(i))
		if err := copyTree(m.Source, spec.Mounts[i].Source); err != nil {
			return nil, err
		}
	}
	for i := range spec.Linux.Namespaces {
		spec.Linux.Namespaces[i].Path = "" // see write
	}
	spec.Linux.CgroupsPath, spec.Linux.Resources = "", nil
	delete(spec.Annotations, annotationCgroupParent)
	return &spec, nil
}

// copyTree copies a file or directory, but not what gVisor keeps in it for a sandbox that runs.
func copyTree(from, to string) error {
	if out, err := exec.Command("cp", "-a", from, to).CombinedOutput(); err != nil {
		return fmt.Errorf("copy %s: %w: %s", from, err, out)
	}
	stores, err := filepath.Glob(filepath.Join(to, ".gvisor.filestore.*"))
	if err != nil {
		return err
	}
	for _, s := range stores {
		if err := os.Remove(s); err != nil {
			return fmt.Errorf("copy %s: %w", from, err)
		}
	}
	return nil
}
