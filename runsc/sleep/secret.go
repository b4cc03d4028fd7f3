package sleep

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"iter"
	"math/big"
	"net"
	"sync"
	"time"
)

// maxSecret bounds what one probe over TLS may send, in bytes.
const maxSecret = 16 << 10

// errNoSecret is the error for a connection over TLS that is no probe by HTTPS.
var errNoSecret = errors.New("not a probe by HTTPS")

// secret is the server's side of a connection over TLS by which a pod is probed by HTTPS. The kubelet takes any
// certificate for this.
type secret struct {
	net.Conn // nil: what TLS does not need

	failing  failures
	received int // bytes
	rest     []byte
	out      bytes.Buffer
	err      error // why it has ended, if not by a whole answer

	// Go's TLS reads from a connection and waits there. So it is a coroutine, which runs within next until it wants more.
	next func() (struct{}, bool)
	stop func()
	more func(struct{}) bool
}

func newSecret(failing failures) *secret {
	s := &secret{failing: failing}
	s.next, s.stop = iter.Pull(func(more func(struct{}) bool) {
		s.more = more
		s.err = s.answer()
	})
	s.next()
	return s
}

// isTLS reports whether data is what a client over TLS begins with: the record of a handshake (RFC 8446, 5.1).
func isTLS(data []byte) bool { return bytes.HasPrefix(data, []byte{22, 3}) }

func (s *secret) take(data []byte) (reply []byte, last bool, err error) {
	if s.received += len(data); s.received > maxSecret {
		return nil, false, fmt.Errorf("%w: more than %d bytes", errNoSecret, maxSecret)
	}
	s.rest = append(s.rest, data...)
	_, waits := s.next()
	reply = bytes.Clone(s.out.Bytes())
	s.out.Reset()
	return reply, !waits, s.err
}

func (s *secret) end() { s.stop() }

// answer answers one request.
func (s *secret) answer() error {
	identity, err := anyone()
	if err != nil {
		return err
	}
	c := tls.Server(s, &tls.Config{
		Certificates: []tls.Certificate{identity}, NextProtos: []string{"http/1.1"}, SessionTicketsDisabled: true,
		CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256}, // a hybrid one would not fit into one segment
	})
	request := make([]byte, maxSecret)
	n, err := c.Read(request)
	if err != nil || !isHTTP(request[:n]) {
		return fmt.Errorf("%w: %w", errNoSecret, err)
	}
	_, err = io.WriteString(c, response(request[:n], s.failing))
	return errors.Join(err, c.Close())
}

// Read reads what has come. It belongs to the coroutine.
func (s *secret) Read(p []byte) (int, error) {
	if len(s.rest) == 0 && !s.more(struct{}{}) {
		return 0, io.EOF
	}
	n := copy(p, s.rest)
	s.rest = s.rest[n:]
	return n, nil
}

func (s *secret) Write(p []byte) (int, error)      { return s.out.Write(p) }
func (s *secret) Close() error                     { return nil }
func (s *secret) SetWriteDeadline(time.Time) error { return nil }

// anyone returns a certificate that nobody has signed, the same for all connections of this process.
var anyone = sync.OnceValues(func() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("key for probes by HTTPS: %w", err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().AddDate(10, 0, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("certificate for probes by HTTPS: %w", err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
})
