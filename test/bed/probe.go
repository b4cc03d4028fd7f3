package bed

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"diapause.dev/runsc/peercred"
)

// serves returns a probe that succeeds when the process takes connections at the unix socket. Another one may still do
// so: when a process is killed, a child that it has just forked keeps its sockets open until it runs another program.
func (p *Process) serves(socket string) func(context.Context) error {
	return func(ctx context.Context) error {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", socket)
		if err != nil {
			return err
		}
		defer conn.Close()
		peer, err := peercred.Of(conn.(*net.UnixConn))
		if err == nil && int(peer.Pid) != p.PID() {
			err = fmt.Errorf("%s is still served by process %d", socket, peer.Pid)
		}
		return err
	}
}

// answers returns a probe that succeeds when a GET of the URL does.
func answers(client *http.Client, url string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := fetch(ctx, client, url)
		return err
	}
}

// maxAnswer bounds one answer, in bytes.
const maxAnswer = 4 << 20

// Client asks servers in pods, without a limit of its own: see SilentClient.
var Client = SilentClient(0)

// SilentClient returns a client that has its own connections and gives up an answer after that time; 0 means never. A
// connection of it that has nothing to do is silent until it is closed: it neither probes whether the other end is
// still there nor ends of itself (IdleConnTimeout is 0). Packets of either would wake a pod, or keep it from falling
// asleep.
func SilentClient(limit time.Duration) *http.Client {
	return &http.Client{Timeout: limit, Transport: &http.Transport{DialContext: Silent.DialContext}}
}

// Silent makes connections that do not probe whether the other end is still there.
var Silent = &net.Dialer{KeepAlive: -1}

// Fetch returns what a server, one in a pod for instance, answers to a GET of the URL. A status other
// than OK is an error that tells the answer.
func Fetch(ctx context.Context, url string) ([]byte, error) {
	return fetch(ctx, Client, url)
}

func fetch(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	r, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	body, err := io.ReadAll(io.LimitReader(r.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	if r.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %.1000s", url, r.Status, body)
	}
	return body, nil
}

// healthy returns a probe that succeeds when the server at that port of the
// loopback address, whose certificate nobody knows, says that it is well.
func healthy(port int) func(context.Context) error {
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	return answers(client, fmt.Sprintf("https://127.0.0.1:%d/healthz", port))
}
