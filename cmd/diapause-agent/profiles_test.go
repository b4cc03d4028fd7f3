package main

import (
	"os"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// TestProfiles: which of our pods run without AppArmor and SELinux is what docs/security.md says, and all of their
// containers are confined otherwise.
func TestProfiles(t *testing.T) {
	for file, unconfined := range map[string]bool{
		"daemonset.yaml": true, "uninstall/daemonset.yaml": true, "controller.yaml": false,
	} {
		manifest, err := os.ReadFile("../../manifests/" + file)
		if err != nil {
			t.Fatal(err)
		}
		var set appsv1.DaemonSet // a Deployment has its pods in the same place
		if err := yaml.Unmarshal(manifest, &set); err != nil {
			t.Fatal(err)
		}
		pod := set.Spec.Template.Spec
		c := pod.SecurityContext
		if c.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: seccomp profile %s", file, c.SeccompProfile.Type)
		}
		armor := c.AppArmorProfile != nil && c.AppArmorProfile.Type == corev1.AppArmorProfileTypeUnconfined
		if linux := c.SELinuxOptions != nil && c.SELinuxOptions.Type == "spc_t"; armor != unconfined || linux != unconfined {
			t.Errorf("%s: without AppArmor: %t, without SELinux: %t, want %t", file, armor, linux, unconfined)
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
}
