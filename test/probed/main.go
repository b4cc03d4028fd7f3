// Command probed is a program in a pod that a kubelet probes by HTTPS and by gRPC. It is always
// well.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// Where it listens.
const (
	HTTPS = ":8443"
	GRPC  = ":9090"
)

func main() {
	failed := make(chan error)
	go func() { failed <- secretly() }()
	go func() { failed <- checked() }()
	fmt.Fprintln(os.Stderr, "probed:", <-failed)
	os.Exit(1)
}

// secretly answers by HTTPS.
func secretly() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().AddDate(10, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	identity := tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	web := &http.Server{
		Addr: HTTPS, ReadHeaderTimeout: 10 * time.Second, TLSConfig: &tls.Config{Certificates: []tls.Certificate{identity}},
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
	}
	return web.ListenAndServeTLS("", "")
}

// checked answers checks of health by gRPC.
func checked() error {
	l, err := net.Listen("tcp", GRPC)
	if err != nil {
		return err
	}
	s := grpc.NewServer()
	grpc_health_v1.RegisterHealthServer(s, health.NewServer())
	return s.Serve(l)
}
