package cri

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"strings"

	"diapause.dev/api/snapshot"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Labels that name a pod for the tools of a cluster. The new pod gets its own values.
const (
	labelPodName      = "io.kubernetes.pod.name"
	labelPodNamespace = "io.kubernetes.pod.namespace"
	labelPodUID       = "io.kubernetes.pod.uid"
)

// maxContainers bounds how many containers a record may name.
const maxContainers = 64

// plan is a record prepared for a new pod. Containers that had ended come first: the shim makes them end again.
type plan struct {
	handler    string
	sandbox    *criapi.PodSandboxConfig
	containers []*criapi.ContainerConfig
}

// identity distinguishes the new pod from the recorded one.
type identity struct {
	name, namespace, uid string
	logRoot              string
	annotations          map[string]string
}

// planOf decodes a record and gives it a new identity. The record is untrusted: whatever it contains, the log
// directory stays below id.logRoot.
func planOf(rec snapshot.Pod, id identity) (*plan, error) {
	p := &plan{handler: rec.RuntimeHandler, sandbox: &criapi.PodSandboxConfig{}}
	if err := json.Unmarshal(rec.Sandbox, p.sandbox); err != nil {
		return nil, fmt.Errorf("recorded pod configuration: %w", err)
	}
	if n := len(rec.Containers) + len(rec.Ended); len(rec.Containers) == 0 || n > maxContainers {
		return nil, fmt.Errorf("recorded pod has %d containers, %d of which run: want 1 to %d", n, len(rec.Containers),
			maxContainers)
	}
	old := p.sandbox.GetMetadata()
	if old == nil {
		return nil, errors.New("recorded pod configuration has no metadata")
	}
	if id.namespace == "" {
		id.namespace = old.GetNamespace()
	}
	if err := p.rename(id); err != nil {
		return nil, err
	}
	var all []snapshot.Container
	for _, c := range rec.Ended {
		all = append(all, c.Container)
	}
	for _, c := range append(all, rec.Containers...) {
		if err := p.add(c, id); err != nil {
			return nil, fmt.Errorf("recorded container %.80q: %w", c.Name, err)
		}
	}
	return p, nil
}

// rename gives the pod its new identity. It drops host ports, because two branches of one snapshot would compete for
// them.
func (p *plan) rename(id identity) error {
	if err := (snapshot.Key{Namespace: id.namespace, Name: id.name}).Validate(); err != nil {
		return fmt.Errorf("new pod: %w", err)
	}
	s, old := p.sandbox, p.sandbox.GetMetadata()
	if s.Hostname == old.GetName() {
		s.Hostname = id.name
	}
	if l := s.GetLinux(); l != nil && old.GetUid() != "" {
		l.CgroupParent = strings.ReplaceAll(l.CgroupParent, old.GetUid(), id.uid)
	}
	s.Metadata = &criapi.PodSandboxMetadata{Name: id.name, Namespace: id.namespace, Uid: id.uid}
	s.LogDirectory = filepath.Join(id.logRoot, id.namespace+"_"+id.name+"_"+id.uid)
	s.Labels = relabel(s.Labels, id)
	annotations := maps.Clone(s.Annotations)
	if annotations == nil {
		annotations = make(map[string]string)
	}
	maps.Copy(annotations, id.annotations)
	s.Annotations = annotations
	for _, m := range s.PortMappings {
		m.HostPort = 0
	}
	return nil
}

func (p *plan) add(c snapshot.Container, id identity) error {
	config := &criapi.ContainerConfig{}
	if err := json.Unmarshal(c.Config, config); err != nil {
		return err
	}
	if config.GetMetadata().GetName() == "" || config.GetImage().GetImage() == "" {
		return errors.New("has no name or no image")
	}
	if config.LogPath != "" && !filepath.IsLocal(config.LogPath) {
		return fmt.Errorf("log path %.80q leaves the pod's log directory", config.LogPath)
	}
	config.Metadata.Attempt = 0
	config.Labels = relabel(config.Labels, id)
	p.containers = append(p.containers, config)
	return nil
}

// relabel returns a copy of labels in which those that name the pod name the new one.
func relabel(labels map[string]string, id identity) map[string]string {
	out := maps.Clone(labels)
	for label, value := range map[string]string{
		labelPodName: id.name, labelPodNamespace: id.namespace,
		labelPodUID: id.uid,
	} {
		if _, ok := out[label]; ok {
			out[label] = value
		}
	}
	return out
}
