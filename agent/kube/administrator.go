package kube

import (
	"context"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"diapause.dev/agent/kube/trial"
	"diapause.dev/agent/kube/uninstall"
)

// CanUninstall returns an error that names what would be lost if Diapause were removed from the cluster now.
func CanUninstall(ctx context.Context, rc *rest.Config) error {
	c, err := client.New(rc, client.Options{Scheme: scheme, Mapper: mapper()})
	if err != nil {
		return err
	}
	return uninstall.Check(ctx, c)
}

// Try tries the installation of the cluster for at most limit. It sets the configuration's client and Logs.
func Try(ctx context.Context, rc *rest.Config, limit time.Duration, c trial.Config) (err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if c.Client, err = client.New(rc, client.Options{Scheme: scheme, Mapper: mapper()}); err != nil {
		return err
	}
	if c.Logs, err = logs(rc); err != nil {
		return err
	}
	return trial.Run(ctx, c)
}

// logs returns what reads the last line of a pod's log.
func logs(rc *rest.Config) (func(ctx context.Context, namespace, pod string) (string, error), error) {
	rc = rest.CopyConfig(rc)
	rc.GroupVersion, rc.APIPath = &corev1.SchemeGroupVersion, "/api"
	rc.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c, err := rest.RESTClientFor(rc)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, namespace, pod string) (string, error) {
		log := c.Get().Namespace(namespace).Resource("pods").Name(pod).SubResource("log")
		out, err := log.Param("tailLines", "1").DoRaw(ctx)
		return strings.TrimSpace(string(out)), err
	}, nil
}
