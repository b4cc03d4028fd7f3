package tools

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"diapause.dev/runsc/fast"
)

// Extra is a set of programs that takes long to build and that few need.
type Extra string

// Kubernetes are the four servers of a cluster, etcd and kubectl, and the Debian
// packages that they need.
const Kubernetes Extra = "kubernetes"

// KubeProxy is the kube-proxy of the [Kubernetes] servers' version.
const KubeProxy Extra = "kube-proxy"

// VM is what virtual machines need: Debian packages, and no programs that are built.
const VM Extra = "vm"

// group is a set of programs built together from one module, and kept.
type group struct {
	name     string
	extra    bool   // built only for who asks
	module   string // directory of the module
	ldflags  string
	packages []string
	source   string // names every version that goes into the programs; empty: go.mod and go.sum of module do
	estimate string // how long a build takes on two cores
	// renamed says what a program is called that Go would name otherwise.
	renamed map[string]string
	// build builds the programs if go build of the module does not. It is given the directory to build into.
	build func(ctx context.Context, out string) error
}

const containerd = "github.com/containerd/containerd/v2"

// containerdVersion stamps the daemon; the go.mod beside it pins what is built.
const containerdVersion = "v2.4.2"

const kubernetes = "k8s.io/kubernetes"

// kubernetesVersion stamps the servers; the go.mod beside it pins what is built.
const kubernetesVersion = "v1.36.3"

// kubernetesFlags are linker flags by which the servers and kubectl know their
// version, which they tell each other.
func kubernetesFlags() string {
	parts := strings.SplitN(strings.TrimPrefix(kubernetesVersion, "v"), ".", 3)
	const component = " -X k8s.io/component-base/version."
	return "-s -w" + component + "gitVersion=" + kubernetesVersion + component + "gitMajor=" + parts[0] + component +
		"gitMinor=" + parts[1] +
		" -X k8s.io/client-go/pkg/version.gitVersion=" + kubernetesVersion
}

func (b Bin) groups(ctx context.Context) ([]group, error) {
	flags, err := ldflags(ctx, b.Root)
	if err != nil {
		return nil, err
	}
	modules, err := goOutput(ctx, b.Root, "list", "-deps", "-f", "{{with .Module}}{{.Path}} {{.Version}}{{end}}", gvisor+
		"/runsc")
	if err != nil {
		return nil, err
	}
	digest, err := fast.Digest()
	if err != nil {
		return nil, err
	}
	return []group{
		{
			name: "runsc", module: b.Root, ldflags: flags, source: modules,
			packages: []string{gvisor + "/runsc"}, estimate: "two minutes",
		},
		{
			name: RunscFast, module: b.Root, ldflags: flags, source: modules + digest,
			packages: []string{gvisor + "/runsc"}, estimate: "a minute",
			build: func(ctx context.Context, out string) error {
				return buildFast(ctx, b.Root, filepath.Join(out, RunscFast), flags, nil)
			},
		},
		{
			name: "containerd", module: filepath.Join(b.Root, "test/tools/containerd"),
			ldflags: "-s -w -X " + containerd + "/version.Version=" + containerdVersion,
			packages: []string{containerd + "/cmd/containerd", containerd + "/cmd/ctr", containerd +
				"/cmd/containerd-shim-runc-v2"},
			estimate: "four minutes",
		},
		{
			name: string(Kubernetes), extra: true, module: filepath.Join(b.Root, "test/tools/kubernetes"),
			ldflags: kubernetesFlags(),
			packages: []string{
				kubernetes + "/cmd/kube-apiserver", kubernetes + "/cmd/kube-controller-manager", kubernetes + "/cmd/kube-scheduler",
				kubernetes + "/cmd/kubelet", kubernetes + "/cmd/kubectl", "go.etcd.io/etcd/server/v3",
			},
			renamed:  map[string]string{"server": "etcd"},
			estimate: "ten minutes",
		},
		{
			name: string(KubeProxy), extra: true, module: filepath.Join(b.Root, "test/tools/kubeproxy"),
			ldflags: kubernetesFlags(), packages: []string{kubernetes + "/cmd/kube-proxy"},
			estimate: "two minutes",
		},
		{
			name: "fakegcs", module: filepath.Join(b.Root, "test/tools/fakegcs"), ldflags: "-s -w",
			packages: []string{"github.com/fsouza/fake-gcs-server"}, estimate: "one minute",
		},
	}, nil
}

// wanted reports whether the group is for who asks for these extras.
func (g group) wanted(extras []Extra) bool { return !g.extra || slices.Contains(extras, Extra(g.name)) }

// key is a digest of all that the programs of the group are made from.
func (g group) key() (string, error) {
	source := g.source
	if source == "" {
		for _, name := range []string{"go.mod", "go.sum"} {
			data, err := os.ReadFile(filepath.Join(g.module, name))
			if err != nil {
				return "", fmt.Errorf("tools: %s: %w", g.name, err)
			}
			source += string(data)
		}
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s\n%s\n%q\n%s", runtime.Version(), runtime.GOARCH, g.ldflags, g.packages,
		source))
	return fmt.Sprintf("%x", sum[:6]), nil
}

// ensure returns the directory that holds the programs of the group, built now
// if they are not there. A build that is cut short leaves nothing under that name.
func (g group) ensure(ctx context.Context, cache string) (string, error) {
	key, err := g.key()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, g.name+"-"+key)
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	fmt.Fprintf(os.Stderr, "tools: building %s (about %s on two cores, once)\n", g.name, g.estimate)
	start := time.Now()
	part := dir + ".part"
	if err := os.RemoveAll(part); err != nil {
		return "", fmt.Errorf("tools: %w", err)
	}
	if err := os.Mkdir(part, 0o755); err != nil {
		return "", fmt.Errorf("tools: %w", err)
	}
	build := g.build
	if build == nil {
		build = func(ctx context.Context, out string) error {
			return goBuild(ctx, g.module, out, g.ldflags, g.packages...)
		}
	}
	if err := build(ctx, part+"/"); err != nil {
		return "", err
	}
	for from, to := range g.renamed {
		if err := os.Rename(filepath.Join(part, from), filepath.Join(part, to)); err != nil {
			return "", fmt.Errorf("tools: %w", err)
		}
	}
	if err := os.Rename(part, dir); err != nil {
		return "", fmt.Errorf("tools: %w", err)
	}
	fmt.Fprintf(os.Stderr, "tools: built %s in %s\n", g.name, time.Since(start).Round(time.Second))
	return dir, nil
}
