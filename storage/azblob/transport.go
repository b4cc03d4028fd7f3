package azblob

import (
	"net/http"

	"diapause.dev/storage/bucket"
)

// transport limits the size of answers. It follows no redirection, and its errors name no URL, which may have a secret
// in it.
type transport struct{ base *http.Transport }

// Do implements policy.Transporter.
func (t *transport) Do(r *http.Request) (*http.Response, error) {
	resp, err := t.base.RoundTrip(r)
	if err == nil {
		bucket.LimitAnswer(r, resp)
	}
	return resp, err
}
