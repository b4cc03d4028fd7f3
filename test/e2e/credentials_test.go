package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
)

// mostMetadata bounds what is read of an upload to learn its object's name, in bytes.
const mostMetadata = 1 << 20

// objectCreator stands before an object store as its access control does for the roles storage.objectCreator and
// storage.objectViewer: it refuses to delete objects and to overwrite them. The agents have no other way to the store.
type objectCreator struct {
	*http.Server
	address string   // where it listens
	store   *url.URL // what it stands before
	proxy   *httputil.ReverseProxy
	// unanswered counts the requests that the store did not answer.
	unanswered atomic.Int64
}

// serveObjectCreator starts to serve, beside the object store at that address. It goes on until it is closed.
func serveObjectCreator(store string) (*objectCreator, error) {
	host, _, err := net.SplitHostPort(store)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return nil, err
	}
	c := &objectCreator{address: l.Addr().String(), store: &url.URL{Scheme: "http", Host: store}}
	c.proxy = &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(c.store) }}
	c.proxy.ErrorHandler = func(w http.ResponseWriter, _ *http.Request, err error) {
		c.unanswered.Add(1)
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
	c.Server = &http.Server{Handler: c}
	go func() { _ = c.Serve(l) }() // returns when it is closed
	return c, nil
}

// ServeHTTP passes on what the roles allow.
func (c *objectCreator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodDelete || c.overwrites(r) {
		http.Error(w, `{"error": {"code": 403, "message": "storage.objects.delete is denied"}}`, http.StatusForbidden)
		return
	}
	c.proxy.ServeHTTP(w, r)
}

// overwrites reports whether a request is to overwrite an object. An upload under the condition that its object does
// not exist does not. Nor does what follows the first request of an upload.
func (c *objectCreator) overwrites(r *http.Request) bool {
	bucket, upload := strings.CutPrefix(r.URL.Path, "/upload/storage/v1/b/")
	if !upload || r.Method != http.MethodPost || r.URL.Query().Get("ifGenerationMatch") == "0" {
		return false
	}
	res, err := http.Get(c.store.String() + "/storage/v1/b/" + bucket + "/" + url.PathEscape(objectOf(r)))
	if err != nil {
		return true // else an object could be overwritten that cannot be seen
	}
	res.Body.Close()
	return res.StatusCode != http.StatusNotFound
}

// objectOf returns the name of an upload's object, and leaves the request as it was.
func objectOf(r *http.Request) string {
	if name := r.URL.Query().Get("name"); name != "" {
		return name
	}
	head, _ := io.ReadAll(io.LimitReader(r.Body, mostMetadata))
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(head), r.Body), r.Body}
	var object struct {
		Name string `json:"name"`
	}
	metadata := io.Reader(bytes.NewReader(head))
	if _, params, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); params["boundary"] != "" {
		part, err := multipart.NewReader(metadata, params["boundary"]).NextPart()
		if err != nil {
			return ""
		}
		metadata = part
	}
	_ = json.NewDecoder(metadata).Decode(&object) // else it has no name, and is refused by the store
	return object.Name
}
