package sleep

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// TestHealth has a client of gRPC, like that of the kubelet's probes, check the health of a pod that nothing but the
// waker answers for, again and again.
func TestHealth(t *testing.T) {
	path := newPod(t)
	n, err := RecordNetwork(path)
	if err != nil {
		t.Fatal(err)
	}
	takeAddresses(t, path)
	if err := n.Silence(); err != nil {
		t.Fatal(err)
	}
	w, err := NewWaker(n, kubelet{podIP + ":5000"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	w.Answer()
	for i := range 3 {
		if status := check(t, podIP+":5000"); status != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Fatalf("probe %d: %v", i, status)
		}
	}
	w.FailReadiness([]Readiness{{Kind: ProbeGRPC, Port: 5000}})
	if status := check(t, podIP+":5000"); status != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("a readiness probe that is to fail: %v", status)
	}
	if w.Came() {
		t.Error("a probe counts as traffic")
	}
}

// check checks the health at an address as the kubelet does.
func check(t *testing.T, address string) grpc_health_v1.HealthCheckResponse_ServingStatus {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, err := grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", to)
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	resp, err := grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "web"})
	if err != nil {
		t.Fatal(err)
	}
	return resp.Status
}

// TestHostileHealth sends what is no check of health, whole and byte by byte.
func TestHostileHealth(t *testing.T) {
	headers := func(length, flags, block string) string { return length + "\x01" + flags + "\x00\x00\x00\x01" + block }
	for name, tc := range map[string]struct {
		data string
		fail bool
	}{
		"nothing more":      {"", false},
		"half a frame":      {"\x00\x00\x08\x06\x00\x00\x00\x00\x00123", false},
		"a ping":            {"\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678", false},
		"a large frame":     {"\xff\xff\xff\x00\x00\x00\x00\x00\x01" + strings.Repeat("x", maxHealth), true},
		"no headers":        {headers("\x00\x00\x02", "\x04", "\xff\xff"), true},
		"another question":  {headers("\x00\x00\x03", "\x04", "\x82\x84\x86"), true}, // GET / over http
		"an endless header": {headers("\x00\x00\x01", "\x00", "\x82"), true},
		"data at once":      {"\x00\x00\x01\x00\x01\x00\x00\x00\x01x", false},
	} {
		whole, bytewise := newHealth(nil), newHealth(nil)
		_, _, err := whole.take([]byte(http2.ClientPreface + tc.data))
		if (err != nil) != tc.fail {
			t.Errorf("%s: %v", name, err)
		}
		_, _, err = bytewise.take([]byte(http2.ClientPreface))
		for i := 0; i < len(tc.data) && err == nil; i++ {
			_, _, err = bytewise.take([]byte{tc.data[i]})
		}
		if (err != nil) != tc.fail {
			t.Errorf("%s, byte by byte: %v", name, err)
		}
	}
}

func FuzzHealth(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x04\x00\x00\x00\x00\x00\x00\x00\x03\x01\x04\x00\x00\x00\x01\x82\x84\x86"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h := newHealth(nil)
		reply, _, err := h.take(append([]byte(http2.ClientPreface), b...))
		if err == nil && len(reply) > 4*maxHealth || len(h.rest) > maxHealth {
			t.Errorf("a reply of %d bytes, %d kept", len(reply), len(h.rest))
		}
	})
}
