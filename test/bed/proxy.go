package bed

import (
	"fmt"
	"net/http"
)

const (
	proxyConfig     = kubernetesDir + "/kube-proxy.yaml"
	proxyKubeconfig = kubernetesDir + "/kube-proxy.conf"
	proxyHealthPort = 10256
	proxyUser       = "system:kube-proxy"
)

// prepareProxy writes the files of the node's kube-proxy. It is started when there is an API.
func (n *Node) prepareProxy(a *authority) error {
	client, err := a.kubeconfig(proxyUser)
	if err != nil {
		return err
	}
	n.Proxy = &Daemon{
		space: n.space, name: "kube-proxy",
		up:   answers(http.DefaultClient, fmt.Sprintf("http://%s:%d/healthz", n.IP, proxyHealthPort)),
		args: []string{"--config=" + proxyConfig},
	}
	return n.space.writeFiles(map[string]string{proxyConfig: n.proxyConfig(), proxyKubeconfig: client})
}

// proxyConfig keeps to the defaults, but for the machine's limits of connections, which belong to all nodes.
func (n *Node) proxyConfig() string {
	return fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: iptables
hostnameOverride: %q
clusterCIDR: %q
clientConnection: {kubeconfig: %q}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
healthzBindAddress: 0.0.0.0:%d
`, n.Name, clusterCIDR, proxyKubeconfig, proxyHealthPort)
}
