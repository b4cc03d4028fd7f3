package bed

import (
	"fmt"
	"net/http"
)

const (
	kubeletConfig     = "/var/lib/kubelet/config.yaml"
	kubeletKubeconfig = kubernetesDir + "/kubelet.conf"
	kubeletCert       = pkiDir + "/kubelet.crt"
	kubeletKey        = pkiDir + "/kubelet.key"
	kubeletHealthPort = 10248
	kubeletGroup      = "system:nodes"
	kubeletUserPrefix = "system:node:"
)

// prepareKubelet writes the files of the node's kubelet. The kubelet is started
// when there is an API.
func (n *Node) prepareKubelet(a *authority) error {
	server, err := a.server(kubeletUserPrefix+n.Name, n.Name, n.IP, "127.0.0.1")
	if err != nil {
		return err
	}
	client, err := a.kubeconfig(kubeletUserPrefix+n.Name, kubeletGroup)
	if err != nil {
		return err
	}
	n.Kubelet = &Daemon{
		space: n.space, name: "kubelet",
		up: answers(http.DefaultClient, fmt.Sprintf("http://%s:%d/healthz", n.IP, kubeletHealthPort)),
		args: []string{
			"--config=" + kubeletConfig, "--kubeconfig=" + kubeletKubeconfig,
			"--hostname-override=" + n.Name, "--node-ip=" + n.IP, "--v=2",
		},
	}
	return n.space.writeFiles(map[string]string{
		kubeletConfig: n.kubeletConfig(), kubeletKubeconfig: client,
		caCert: string(a.cert), kubeletCert: string(server.cert), kubeletKey: string(server.key),
	})
}

// kubeletConfig keeps to the defaults, but for what a node inside a machine needs:
// no rules for a kube-proxy, no collection of images, which could not be pulled
// again, no long wait before a container that was killed is started again, and
// health told to the bed.
func (n *Node) kubeletConfig() string {
	return fmt.Sprintf(`apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: false}
  webhook: {enabled: true}
  x509: {clientCAFile: %q}
authorization: {mode: Webhook}
tlsCertFile: %q
tlsPrivateKeyFile: %q
containerRuntimeEndpoint: %q
cgroupDriver: cgroupfs
cgroupRoot: %q
failCgroupV1: false
failSwapOn: false
makeIPTablesUtilChains: false
imageGCHighThresholdPercent: 100
crashLoopBackOff: {maxContainerRestartPeriod: 1s}
evictionHard: {memory.available: 50Mi, nodefs.available: 1%%, imagefs.available: 1%%}
clusterDomain: cluster.local
healthzBindAddress: 0.0.0.0
healthzPort: %d
`, caCert, kubeletCert, kubeletKey, "unix://"+ContainerdSocket, n.CgroupParent, kubeletHealthPort)
}
