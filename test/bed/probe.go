package bed

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
)

// dials returns a probe that succeeds when the unix socket takes a connection.
func dials(socket string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err != nil {
			return err
		}
		return conn.Close()
	}
}

// answers returns a probe that succeeds when a GET of the URL does.
func answers(client *http.Client, url string) func(context.Context) error {
	return func(ctx context.Context) error {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		r, err := client.Do(req)
		if err != nil {
			return err
		}
		defer r.Body.Close()
		if r.StatusCode != http.StatusOK {
			body, _ := io.ReadAll(io.LimitReader(r.Body, 1<<10)) // the status is the error
			return fmt.Errorf("%s: %s: %s", url, r.Status, body)
		}
		return nil
	}
}

// healthy returns a probe that succeeds when the server at that port of the
// loopback address, whose certificate nobody knows, says that it is well.
func healthy(port int) func(context.Context) error {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	return answers(client, fmt.Sprintf("https://127.0.0.1:%d/healthz", port))
}
