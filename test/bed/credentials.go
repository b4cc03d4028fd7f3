package bed

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The files of a control plane, at the places where kubeadm has them.
const (
	kubernetesDir = "/etc/kubernetes"
	pkiDir        = kubernetesDir + "/pki"

	caCert, caKey               = pkiDir + "/ca.crt", pkiDir + "/ca.key"
	serverCert, serverKey       = pkiDir + "/apiserver.crt", pkiDir + "/apiserver.key"
	toKubeletCert, toKubeletKey = pkiDir + "/apiserver-kubelet-client.crt", pkiDir + "/apiserver-kubelet-client.key"
	tokenKey, tokenPublicKey    = pkiDir + "/sa.key", pkiDir + "/sa.pub"

	adminConfig      = kubernetesDir + "/admin.conf"
	controllerConfig = kubernetesDir + "/controller-manager.conf"
	schedulerConfig  = kubernetesDir + "/scheduler.conf"
)

// admins is the group that may do everything.
const admins = "system:masters"

// writeCredentials writes the keys, certificates and configurations by which the
// parts of a control plane know each other.
func (a *authority) writeCredentials() error {
	server, err := a.server("kube-apiserver", bedIP, serviceIP, "127.0.0.1", "localhost",
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
	if err != nil {
		return err
	}
	toKubelet, err := a.client("kube-apiserver-kubelet-client", admins)
	if err != nil {
		return err
	}
	private, public, err := newSigningKey()
	if err != nil {
		return err
	}
	files := map[string]string{
		caCert: string(a.cert), caKey: string(a.key),
		serverCert: string(server.cert), serverKey: string(server.key),
		toKubeletCert: string(toKubelet.cert), toKubeletKey: string(toKubelet.key),
		tokenKey: string(private), tokenPublicKey: string(public),
	}
	users := map[string][]string{
		adminConfig: {"admin", admins}, controllerConfig: {"system:kube-controller-manager"},
		schedulerConfig: {"system:kube-scheduler"},
	}
	for path, user := range users {
		config, err := a.kubeconfig(user[0], user[1:]...)
		if err != nil {
			return err
		}
		files[path] = config
	}
	return base.writeFiles(files)
}

// kubeconfig returns the contents of a kubeconfig file by which a program, in the
// bed or in a node, is that user in these groups.
func (a *authority) kubeconfig(user string, groups ...string) (string, error) {
	p, err := a.client(user, groups...)
	if err != nil {
		return "", err
	}
	const name = "bed"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: apiURL, CertificateAuthorityData: a.cert}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: p.cert, ClientKeyData: p.key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: user}
	config.CurrentContext = name
	data, err := clientcmd.Write(*config)
	if err != nil {
		return "", fmt.Errorf("bed: kubeconfig of %s: %w", user, err)
	}
	return string(data), nil
}
