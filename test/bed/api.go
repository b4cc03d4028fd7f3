package bed

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"

	"diapause.dev/test/tools"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// The addresses of the API.
const (
	apiAddress = bedIP + ":6443"
	apiURL     = "https://" + apiAddress
	// EtcdURL is where etcd serves clients, without TLS.
	EtcdURL      = "http://127.0.0.1:2379"
	etcdPeerURL  = "http://127.0.0.1:2380"
	serviceRange = "10.96.0.0/24"
	serviceIP    = "10.96.0.1" // of the Service "kubernetes"
)

// etcdData is where etcd has its data.
const etcdData = "/var/lib/etcd/data"

// API is a Kubernetes API server with its etcd, in the bed's own namespaces. It
// asks for certificates or tokens, and authorizes nodes and roles, as in a
// cluster. Its methods may be called from several goroutines, but for Close.
type API struct {
	// Bin are the programs of this bed, which are also in the PATH.
	Bin tools.Bin
	// Config is that of a client who may do everything, without a rate limit.
	Config *rest.Config
	// Client is a client of Config.
	Client kubernetes.Interface
	// Kubeconfig is the path of a file that says the same as Config.
	Kubeconfig string
	// Server and Etcd are the two daemons.
	Server, Etcd *Daemon

	authority *authority
}

// StartAPI starts an API server with nothing in it, and returns when it is ready.
// Of the namespace default there is the service account default, so that pods can
// be made, though nothing runs them. A program has one at a time, and not beside a
// [Bed].
func StartAPI(ctx context.Context) (*API, error) {
	if here == nil {
		return nil, errOutside
	}
	a, err := newAPI()
	if err != nil {
		return nil, err
	}
	if err := a.start(ctx); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

// newAPI prepares an API that is not started yet.
func newAPI() (*API, error) {
	if err := os.RemoveAll(etcdData); err != nil {
		return nil, fmt.Errorf("bed: %w", err)
	}
	a := &API{Bin: here.Bin, Kubeconfig: adminConfig}
	var err error
	if a.authority, err = newAuthority(); err != nil {
		return nil, err
	}
	if err := a.authority.writeCredentials(); err != nil {
		return nil, err
	}
	if a.Config, err = clientcmd.BuildConfigFromFlags("", adminConfig); err != nil {
		return nil, fmt.Errorf("bed: read %s: %w", adminConfig, err)
	}
	a.Config.QPS = -1
	if a.Client, err = kubernetes.NewForConfig(a.Config); err != nil {
		return nil, fmt.Errorf("bed: client of the API: %w", err)
	}
	a.Etcd = &Daemon{space: base, name: "etcd", args: etcdArgs(), up: answers(http.DefaultClient, EtcdURL+"/readyz")}
	a.Server = &Daemon{space: base, name: "kube-apiserver", args: serverArgs(), up: a.ready}
	return a, nil
}

func (a *API) start(ctx context.Context) error {
	if err := a.Etcd.Start(ctx); err != nil {
		return err
	}
	if err := a.Server.Start(ctx); err != nil {
		return err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	_, err := a.Client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(ctx, account, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("bed: create the service account default: %w", err)
	}
	return nil
}

// ready reports what the API server still waits for.
func (a *API) ready(ctx context.Context) error {
	if err := a.Client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); err != nil {
		return err
	}
	_, err := a.Client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceDefault, metav1.GetOptions{})
	return err
}

// Close ends the API server and etcd. After it, StartAPI may be called again.
func (a *API) Close() {
	a.Server.Kill()
	a.Etcd.Kill()
}

// Backup copies what etcd has into an empty directory, while etcd is stopped.
func (a *API) Backup(ctx context.Context, dir string) error {
	a.Etcd.Kill()
	if err := os.CopyFS(dir, os.DirFS(etcdData)); err != nil {
		return fmt.Errorf("bed: backup of etcd: %w", err)
	}
	return a.Etcd.Start(ctx)
}

// Restore brings back a backup, and starts etcd and the API server with it.
func (a *API) Restore(ctx context.Context, dir string) error {
	a.Close()
	err := os.RemoveAll(etcdData)
	if err == nil {
		err = os.CopyFS(etcdData, os.DirFS(dir))
	}
	if err != nil {
		return fmt.Errorf("bed: restore etcd: %w", err)
	}
	if err := a.Etcd.Start(ctx); err != nil {
		return err
	}
	return a.Server.Start(ctx)
}

// Kubectl runs kubectl as one who may do everything, and returns what it prints.
func (a *API) Kubectl(ctx context.Context, args ...string) (string, error) {
	return a.kubectl(ctx, "", args)
}

// Apply applies a manifest, as kubectl does.
func (a *API) Apply(ctx context.Context, manifest string) error {
	_, err := a.kubectl(ctx, manifest, []string{"apply", "--filename=-"})
	return err
}

func (a *API) kubectl(ctx context.Context, input string, args []string) (string, error) {
	cmd := exec.CommandContext(ctx, here.Bin.Path("kubectl"), append([]string{"--kubeconfig=" + a.Kubeconfig}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	return output(cmd, (*exec.Cmd).Run)
}

// output runs a command by run, and returns what it writes on standard output.
// Its error tells what it writes on standard error.
func output(cmd *exec.Cmd, run func(*exec.Cmd) error) (string, error) {
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := run(cmd)
	if err != nil {
		err = fmt.Errorf("bed: %s: %w\n%s", strings.Join(cmd.Args, " "), err, strings.TrimSpace(errOut.String()))
	}
	return out.String(), err
}

func etcdArgs() []string {
	return []string{
		"--data-dir=" + etcdData, "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls=" + EtcdURL, "--advertise-client-urls=" + EtcdURL,
		"--listen-peer-urls=" + etcdPeerURL, "--initial-advertise-peer-urls=" + etcdPeerURL, "--initial-cluster=default=" +
			etcdPeerURL,
	}
}

func serverArgs() []string {
	return []string{
		"--etcd-servers=" + EtcdURL, "--service-cluster-ip-range=" + serviceRange, "--advertise-address=" + bedIP,
		"--secure-port=6443",
		"--client-ca-file=" + caCert, "--tls-cert-file=" + serverCert, "--tls-private-key-file=" + serverKey,
		"--kubelet-certificate-authority=" + caCert, "--kubelet-preferred-address-types=InternalIP",
		"--kubelet-client-certificate=" + toKubeletCert, "--kubelet-client-key=" + toKubeletKey,
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + tokenPublicKey, "--service-account-signing-key-file=" + tokenKey,
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--profiling=false",
	}
}
