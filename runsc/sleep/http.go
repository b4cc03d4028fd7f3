package sleep

import "bytes"

// What answers an HTTP probe.
const (
	success = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
	failure = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)

// plain is a dialog by HTTP.
type plain struct{ failing failures }

func (d plain) take(data []byte) (reply []byte, last bool, err error) {
	if !isHTTP(data) {
		return nil, false, errNoProbe
	}
	return []byte(response(data, d.failing)), true, nil
}

// response returns what answers an HTTP request.
func response(request []byte, failing failures) string {
	if failing.asked(request) {
		return failure
	}
	return success
}

func (plain) end() {}

// isHTTP reports whether data begins an HTTP request as the kubelet's probes send it.
func isHTTP(data []byte) bool {
	return bytes.HasPrefix(data, []byte("GET ")) || bytes.HasPrefix(data, []byte("HEAD "))
}
