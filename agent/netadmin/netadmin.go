// Package netadmin has the rule for pods with a container that may change the pod's network. gVisor saves neither
// firewall rules nor routes nor addresses that a program has set, so a blocked way out would be open after a restore.
// Such a pod never sleeps. A checkpoint of it warns or, if its policy says so, fails.
package netadmin

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"diapause.dev/agent/errkind"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// capability is what a container needs to change the pod's network, as a pod's spec names it.
const capability = "NET_ADMIN"

// Granted reports whether a container whose spec adds and drops these capabilities may change the pod's network. Like
// containerd it does not mind the case. A container that is privileged always may.
func Granted(add, drop []string) bool {
	has := func(list []string, name string) bool {
		return slices.ContainsFunc(list, func(s string) bool { return strings.EqualFold(s, name) })
	}
	return (has(add, capability) || has(add, "CAP_"+capability) || has(add, "ALL")) && !has(drop, capability)
}

// Case is what a cluster knows about a pod.
type Case struct {
	Container string // which may change the pod's network; empty: none is known
	Fails     bool   // the pod's policy has checkpoints fail
}

// Check refuses a checkpoint that the rule forbids. Otherwise it returns a warning that is to come with the snapshot,
// or nothing. What containerd has recorded of the pod counts, too: a node may have no cluster. A snapshot of files
// alone brings no process back that needs the network as it was.
func (c Case) Check(pod snapshot.PodRef, rec snapshot.Pod, scope snapshot.Scope, sleep bool) (string, error) {
	if scope == snapshot.RootfsOnly && !sleep {
		return "", nil
	}
	if c.Container == "" {
		var err error
		if c.Container, err = recorded(rec); err != nil {
			return "", fmt.Errorf("pod %s: %w", pod, err)
		}
	}
	if sleep {
		return "", c.Sleep(pod.String())
	}
	return c.Warning(), c.Checkpoint(pod.String())
}

// config is the part of a container's recorded configuration that counts.
type config struct {
	Linux struct {
		SecurityContext struct {
			Privileged   bool `json:"privileged"`
			Capabilities struct {
				Add     []string `json:"add_capabilities"`
				Ambient []string `json:"add_ambient_capabilities"`
				Drop    []string `json:"drop_capabilities"`
			} `json:"capabilities"`
		} `json:"security_context"`
	} `json:"linux"`
}

// recorded returns the name of a container of a recorded pod that may change, or may have changed, the pod's network.
// It returns nothing if there is none.
func recorded(rec snapshot.Pod) (name string, err error) {
	all := slices.Clone(rec.Containers)
	for _, x := range rec.Ended {
		all = append(all, x.Container)
	}
	for _, x := range all {
		var c config
		if err := json.Unmarshal(x.Config, &c); err != nil {
			return "", fmt.Errorf("configuration of container %.64s: %w", x.Name, err)
		}
		s := &c.Linux.SecurityContext
		if s.Privileged || Granted(append(s.Capabilities.Add, s.Capabilities.Ambient...), s.Capabilities.Drop) {
			return x.Name, nil
		}
	}
	return "", nil
}

// Sleep returns a refusal if the pod may not sleep.
func (c Case) Sleep(pod string) error {
	if c.Container == "" {
		return nil
	}
	return fmt.Errorf("pod %s never sleeps: its container %.64s has %w, and gVisor would lose the firewall rules, routes "+
		"and addresses that it may have set: restrict the network by a NetworkPolicy and take NET_ADMIN from the container",
		pod, c.Container, errkind.ErrNetAdmin)
}

// Checkpoint returns a refusal if the pod may not be checkpointed.
func (c Case) Checkpoint(pod string) error {
	if c.Container == "" || !c.Fails {
		return nil
	}
	return fmt.Errorf("pod %s is not checkpointed: its container %.64s has %w, and a restored pod would lack the "+
		"firewall rules, routes and addresses that it may have set: take NET_ADMIN from the container, or annotate the "+
		"PodSnapshotPolicy with %s: %s", pod, c.Container, errkind.ErrNetAdmin, podsnapshotv1.AnnotationOnNetAdmin,
		podsnapshotv1.OnNetAdminWarn)
}

// Warning returns what a restore does not bring back, or nothing.
func (c Case) Warning() string {
	if c.Container == "" {
		return ""
	}
	return fmt.Sprintf("a restored pod lacks the firewall rules, routes and addresses that its container %.64s may have "+
		"set, which has NET_ADMIN: restrict the network by a NetworkPolicy", c.Container)
}
