package s3

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"diapause.dev/storage/bucket"
)

// transport limits the size of answers.
type transport struct{ base *http.Transport }

// RoundTrip implements http.RoundTripper. The library takes any 404 as an answer about an object, whoever gives it.
// RoundTrip believes it only in the form in which the service gives it.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	is := resp.Header.Get("Content-Type")
	if resp.StatusCode == http.StatusNotFound && r.Method != http.MethodHead && !strings.Contains(is, "xml") {
		return nil, errors.Join(fmt.Errorf("%s does not speak S3: it answers %s with %.40q", r.URL.Host, resp.Status, is),
			resp.Body.Close())
	}
	bucket.LimitAnswer(r, resp)
	return resp, nil
}
