package plan

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/annotation"
	criapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Labels that name a pod for the tools of a cluster. The new pod gets its own values.
const (
	labelPodName      = "io.kubernetes.pod.name"
	labelPodNamespace = "io.kubernetes.pod.namespace"
	labelPodUID       = "io.kubernetes.pod.uid"
)

// MaxContainers bounds how many containers a record may name.
const MaxContainers = 64

// Plan is a record prepared for a new pod. Containers that had ended come first: the shim makes them end again.
//
// A record is data of somebody else. A plan is made from it field by field: a field that no code here copies is not in
// the new pod. What is copied gives the pod's processes nothing on the node. What would do so takes an allowance.
type Plan struct {
	Handler    string // the recorded runtime handler
	Sandbox    *criapi.PodSandboxConfig
	Containers []*criapi.ContainerConfig

	id      Identity
	old     struct{ name, uid string } // of the recorded pod
	consent consent
	where   string // the pod or the container that is being planned
}

// Identity distinguishes the new pod from the recorded one, and says what it may have beyond what every record may
// ask for.
type Identity struct {
	Name, Namespace, UID string            // an empty Namespace means the recorded one
	LogRoot              string            // the directory of all pods' log directories
	Annotations          map[string]string // added to the recorded ones, which they override
	Allow                []Allowance
	Occupied             func(cgroup string) bool // reports whether a cgroup has processes of its own; nil: none has
}

// Of prepares a record for a new pod. If the record asks for more than is allowed, the error is of kind
// ErrNotAllowed and names everything. Whatever the record contains, the log directory stays below id.LogRoot.
func Of(rec snapshot.Pod, id Identity) (*Plan, error) {
	if n := len(rec.Containers) + len(rec.Ended); len(rec.Containers) == 0 || n > MaxContainers {
		return nil, fmt.Errorf("recorded pod has %d containers, %d of which run: want 1 to %d", n, len(rec.Containers),
			MaxContainers)
	}
	p := &Plan{Handler: rec.RuntimeHandler, id: id, consent: consent{given: id.Allow}, where: "the pod"}
	if err := p.takeSandbox(rec); err != nil {
		return nil, fmt.Errorf("recorded pod: %w", err)
	}
	var all []snapshot.Container
	for _, c := range rec.Ended {
		all = append(all, c.Container)
	}
	for _, c := range append(all, rec.Containers...) {
		if err := p.takeContainer(c); err != nil {
			return nil, fmt.Errorf("recorded container %.80q: %w", c.Name, err)
		}
	}
	if err := p.consent.err(); err != nil {
		return nil, fmt.Errorf("recorded pod: %w", err)
	}
	return p, nil
}

// takeSandbox makes the configuration of the new pod. It drops host ports, because two branches of one snapshot would
// compete for them.
func (p *Plan) takeSandbox(rec snapshot.Pod) error {
	var r sandboxRecord
	if err := decode(rec.Sandbox, &r); err != nil {
		return err
	}
	if r.Metadata == nil {
		return errors.New("its configuration has no metadata")
	}
	p.old.name, p.old.uid = r.Metadata.Name, r.Metadata.UID
	if p.id.Namespace == "" {
		p.id.Namespace = r.Metadata.Namespace
	}
	if err := (snapshot.Key{Namespace: p.id.Namespace, Name: p.id.Name}).Validate(); err != nil {
		return fmt.Errorf("new pod: %w", err)
	}
	p.Sandbox = &criapi.PodSandboxConfig{
		Metadata:     &criapi.PodSandboxMetadata{Name: p.id.Name, Namespace: p.id.Namespace, Uid: p.id.UID},
		Hostname:     r.Hostname,
		LogDirectory: filepath.Join(p.id.LogRoot, p.id.Namespace+"_"+p.id.Name+"_"+p.id.UID),
		Labels:       p.labels(r.Labels),
		Annotations:  p.annotations(r.Annotations),
	}
	if r.Hostname == p.old.name {
		p.Sandbox.Hostname = p.id.Name
	}
	maps.Copy(p.Sandbox.Annotations, p.id.Annotations)
	if r.DNS != nil {
		p.Sandbox.DnsConfig = &criapi.DNSConfig{Servers: r.DNS.Servers, Searches: r.DNS.Searches, Options: r.DNS.Options}
	}
	for _, m := range r.Ports {
		p.Sandbox.PortMappings = append(p.Sandbox.PortMappings,
			&criapi.PortMapping{Protocol: criapi.Protocol(m.Protocol), ContainerPort: m.ContainerPort})
	}
	return p.takeLinux(&r)
}

// takeLinux takes over what only pods under Linux have.
func (p *Plan) takeLinux(r *sandboxRecord) (err error) {
	if r.Linux == nil {
		return nil
	}
	l := &criapi.LinuxPodSandboxConfig{Sysctls: p.sysctls(r.Linux.Sysctls)}
	if l.CgroupParent, err = p.cgroup(r.Linux.CgroupParent); err != nil {
		return err
	}
	if l.SecurityContext, err = p.sandboxSecurity(r.Linux.SecurityContext); err != nil {
		return err
	}
	if l.Overhead, err = p.resources(r.Linux.Overhead); err != nil {
		return err
	}
	l.Resources, err = p.resources(r.Linux.Resources)
	p.Sandbox.Linux = l
	return err
}

// containerName matches the names of containers. They are parts of ids, of messages and of paths of logs.
var containerName = regexp.MustCompile(`^[A-Za-z0-9][-_.A-Za-z0-9]{0,252}$`)

// ValidContainer reports whether a container can have a name.
func ValidContainer(name string) bool { return containerName.MatchString(name) }

// maxSignal is the last signal that the CRI knows.
var maxSignal = int32(len(criapi.Signal_name) - 1)

// takeContainer makes the configuration of one container of the new pod.
func (p *Plan) takeContainer(c snapshot.Container) error {
	var r containerRecord
	if err := decode(c.Config, &r); err != nil {
		return err
	}
	switch {
	case r.Metadata.Name == "" || r.Image.Image == "":
		return errors.New("has no name or no image")
	case !ValidContainer(r.Metadata.Name):
		return fmt.Errorf("its name %.80q is none that a container has", r.Metadata.Name)
	case r.LogPath != "" && !filepath.IsLocal(r.LogPath):
		return fmt.Errorf("log path %.80q leaves the pod's log directory", r.LogPath)
	case r.StopSignal < 0 || r.StopSignal > maxSignal:
		return fmt.Errorf("stop signal %d is not known", r.StopSignal)
	}
	p.where = "container " + r.Metadata.Name
	config := &criapi.ContainerConfig{
		Metadata: &criapi.ContainerMetadata{Name: r.Metadata.Name},
		Image:    &criapi.ImageSpec{Image: r.Image.Image, UserSpecifiedImage: r.Image.UserSpecifiedImage},
		Command:  r.Command, Args: r.Args, WorkingDir: r.WorkingDir,
		Labels: p.labels(r.Labels), Annotations: p.annotations(r.Annotations),
		LogPath: r.LogPath,
		Stdin:   r.Stdin, StdinOnce: r.StdinOnce, Tty: r.TTY,
		StopSignal: criapi.Signal(r.StopSignal),
	}
	for _, e := range r.Envs {
		config.Envs = append(config.Envs, &criapi.KeyValue{Key: e.Key, Value: []byte(e.Value)})
	}
	if err := p.takeDevices(config, &r); err != nil {
		return err
	}
	p.Containers = append(p.Containers, config)
	if r.Linux == nil {
		return nil
	}
	resources, err := p.resources(r.Linux.Resources)
	if err != nil {
		return err
	}
	security, err := p.containerSecurity(r.Linux.SecurityContext)
	config.Linux = &criapi.LinuxContainerConfig{Resources: resources, SecurityContext: security}
	return err
}

// Labels of a record that are taken over: names without a domain, and those of Kubernetes. Containerd acts on labels
// of its own (containerd.io/...): one has it run a program of the node.
var (
	plainLabel      = regexp.MustCompile(`^[A-Za-z0-9][-_A-Za-z0-9]{0,62}$`)
	kubeletLabel    = regexp.MustCompile(`^io\.kubernetes\.(pod|container)\.[A-Za-z.]{1,63}$`)
	kubernetesLabel = regexp.MustCompile(`^([a-z0-9-]{1,63}\.){0,4}(kubernetes|k8s)\.io/[-_.A-Za-z0-9]{1,63}$`)
)

// labels returns the labels of the new pod, or of one of its containers. Those that name the pod name the new one.
func (p *Plan) labels(recorded map[string]string) map[string]string {
	own := map[string]string{
		labelPodName: p.id.Name, labelPodNamespace: p.id.Namespace,
		labelPodUID: p.id.UID,
	}
	out := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(recorded)) {
		value, named := own[name]
		if !named {
			value = recorded[name]
		}
		if named || plainLabel.MatchString(name) || kubeletLabel.MatchString(name) || kubernetesLabel.MatchString(name) ||
			p.may(kindLabel, name) {
			out[name] = value
		}
	}
	return out
}

// leftOut are prefixes of annotations that mean something only to the pod that was recorded: what a kubelet and kubectl
// note in it, and what it was made from.
var leftOut = []string{
	"kubernetes.io/config.", "kubectl.kubernetes.io/", "io.kubernetes.pod.", "io.kubernetes.container.",
	"diapause.dev/", "podsnapshot.gke.io/",
}

// annotations returns the annotations of the new pod, or of one of its containers. It leaves out those of gVisor that
// the shim would drop, too.
func (p *Plan) annotations(recorded map[string]string) map[string]string {
	out := make(map[string]string)
	for _, name := range slices.Sorted(maps.Keys(recorded)) {
		value := recorded[name]
		ours := slices.ContainsFunc(leftOut, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
		switch {
		case annotation.OfGVisor(name):
			if annotation.Allowed(name, value, nil) {
				out[name] = value
			}
		case !ours && p.may(kindAnnotation, name):
			out[name] = value
		}
	}
	return out
}
