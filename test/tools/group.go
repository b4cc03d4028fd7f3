package tools

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Extra is a set of programs that takes long to build and that few need.
type Extra string

// Kubernetes are the four servers of a cluster, etcd and kubectl, and the Debian
// packages that they need.
const Kubernetes Extra = "kubernetes"

// KubeProxy is the kube-proxy of the [Kubernetes] servers' version.
const KubeProxy Extra = "kube-proxy"

// S3 are two servers of S3's protocol, for the tests of package storage/s3 and of a cluster.
const S3 Extra = "store-servers"

// Helm is Helm's own command line, for the tests that install the chart.
const Helm Extra = "helm"

// VM is what virtual machines need: Debian packages, and no programs that are built.
const VM Extra = "vm"

// group is a set of programs built together from one module, and kept for all checkouts.
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
	// Of the rest of go.mod, only what it says of Go's defaults goes into runsc.
	modules, err := goOutputIn(ctx, b.Root, groupEnv, "list", "-deps", "-f", "{{.DefaultGODEBUG}} {{with .Module}}"+
		"{{.Path}} {{.Version}}{{with .Replace}} {{.Path}} {{.Version}}{{end}}{{end}}", gvisor+"/runsc")
	if err != nil {
		return nil, err
	}
	digest, err := fastDigest(ctx, b.Root)
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
			packages: []string{gvisor + "/runsc"}, renamed: map[string]string{"runsc": RunscFast}, estimate: "a minute",
			build: func(ctx context.Context, out string) error {
				return buildFast(ctx, b.Root, filepath.Join(out, "runsc"), flags, groupEnv)
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
		b.fakeGCS(),
		b.s3(),
		{
			name: string(Helm), extra: true, module: filepath.Join(b.Root, "test/tools/helm"), ldflags: "-s -w",
			packages: []string{"helm.sh/helm/v4/cmd/helm"}, estimate: "three minutes",
		},
		b.promtool(),
		b.azurite(),
	}, nil
}

const fakeGCS = "fakegcs"

func (b Bin) fakeGCS() group {
	return group{
		name: fakeGCS, module: filepath.Join(b.Root, "test/tools/fakegcs"), ldflags: "-s -w",
		packages: []string{"github.com/fsouza/" + fakeGCSServer}, estimate: "one minute",
	}
}

func (b Bin) s3() group {
	return group{
		name: string(S3), extra: true, module: filepath.Join(b.Root, "test/tools/s3"), ldflags: "-s -w",
		packages: []string{
			"github.com/versity/versitygw/cmd/" + VersityGW, "github.com/johannesboyne/gofakes3/cmd/" + GoFakeS3,
		},
		estimate: "three minutes",
	}
}

const promtool = "promtool"

func (b Bin) promtool() group {
	return group{
		name: promtool, extra: true, module: filepath.Join(b.Root, "test/tools/promtool"), ldflags: "-s -w",
		packages: []string{"github.com/prometheus/prometheus/cmd/promtool"}, estimate: "five minutes",
	}
}

// wanted reports whether the group is for who asks for these extras.
func (g group) wanted(extras []Extra) bool { return !g.extra || slices.Contains(extras, Extra(g.name)) }

// names are those of all groups.
var names = []string{
	"runsc", RunscFast, "containerd", string(Kubernetes), string(KubeProxy), fakeGCS, string(S3), string(Helm),
	promtool, azurite,
}

// programs are the names of the group's programs.
func (g group) programs() []string {
	var list []string
	for _, p := range g.packages {
		name := path.Base(p)
		if major.MatchString(name) {
			name = path.Base(path.Dir(p))
		}
		if other, ok := g.renamed[name]; ok {
			name = other
		}
		list = append(list, name)
	}
	return list
}

// major is the end of a module's path that does not name a program.
var major = regexp.MustCompile(`^v[0-9]+$`)

// groupEnv is the environment in which programs are built that are kept. They are for all, so that nobody's own flags
// may go into them.
var groupEnv = []string{"CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-mod=readonly"}

// toolchain are the settings of Go that decide about programs, besides its flags.
var toolchain = []string{"GOVERSION", "GOOS", "GOARCH", "GOAMD64", "GOARM64", "GOEXPERIMENT", "GOFIPS140"}

// key is a digest of all that the programs of the group are made from.
func (g group) key(ctx context.Context) (string, error) {
	settings, err := goOutputIn(ctx, g.module, groupEnv, append([]string{"env"}, toolchain...)...)
	if err != nil {
		return "", err
	}
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
	args := buildArgs("", g.ldflags, g.packages...)
	sum := sha256.Sum256(fmt.Appendf(nil, "%q\n%q\n%q\n%q\n%q", settings, groupEnv, args, g.renamed, source))
	return fmt.Sprintf("%x", sum[:6]), nil
}
