package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestProfiles: which of our pods run without AppArmor and SELinux, and share the node's processes, is what
// docs/security/README.md says. All of their containers are confined otherwise.
func TestProfiles(t *testing.T) {
	unconfined := map[string]bool{"daemonset.yaml": true, "uninstall/daemonset.yaml": true, "controller.yaml": false}
	for file, pod := range podsOf(t, "../../manifests") {
		want, known := unconfined[file]
		if !known {
			t.Errorf("docs/security/README.md says nothing of the pods of %s", file)
		}
		delete(unconfined, file)
		c := pod.SecurityContext
		if c.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: seccomp profile %s", file, c.SeccompProfile.Type)
		}
		armor := c.AppArmorProfile != nil && c.AppArmorProfile.Type == corev1.AppArmorProfileTypeUnconfined
		if linux := c.SELinuxOptions != nil && c.SELinuxOptions.Type == "spc_t"; armor != want || linux != want {
			t.Errorf("%s: without AppArmor: %t, without SELinux: %t, want %t", file, armor, linux, want)
		}
		if pod.HostPID != want || pod.HostNetwork || pod.HostIPC || !want && (len(pod.Volumes) > 0 || *c.RunAsUser == 0) {
			t.Errorf("%s: the pods have more of the node than they need: %+v", file, pod)
		}
		for _, container := range append(pod.InitContainers, pod.Containers...) {
			c := container.SecurityContext
			if *c.Privileged || *c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem ||
				len(c.Capabilities.Drop) != 1 || c.Capabilities.Drop[0] != "ALL" || c.AppArmorProfile != nil ||
				c.SELinuxOptions != nil || c.SeccompProfile != nil {
				t.Errorf("%s: container %s: %+v", file, container.Name, c)
			}
		}
	}
	if len(unconfined) > 0 {
		t.Errorf("there are no pods in %v", unconfined)
	}
}

// podsOf returns the pods of the DaemonSets and Deployments below a directory, by file.
func podsOf(t *testing.T, dir string) map[string]corev1.PodSpec {
	t.Helper()
	pods := make(map[string]corev1.PodSpec)
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		manifest, err := os.ReadFile(filepath.Join(dir, path))
		for document := range bytes.SplitSeq(manifest, []byte("\n---\n")) {
			var set appsv1.DaemonSet // a Deployment has its pods in the same place
			if err := yaml.Unmarshal(document, &set); err != nil || set.Kind != "DaemonSet" && set.Kind != "Deployment" {
				continue // it has no pods
			}
			pods[path] = set.Spec.Template.Spec
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return pods
}
