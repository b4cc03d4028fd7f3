package s3_test

import (
	"fmt"
	"net/http"
	"strings"

	"diapause.dev/storage/storagetest"
)

// kind returns the kind of a request.
func kind(r *http.Request) string {
	q := r.URL.Query()
	switch {
	case r.Method == http.MethodHead:
		return storagetest.Head
	case q.Has("list-type"):
		return storagetest.List
	case r.Method == http.MethodGet:
		return storagetest.Get
	case q.Has("uploads"):
		return storagetest.Begin
	case q.Has("partNumber"):
		return storagetest.Part
	case q.Has("uploadId") && r.Method == http.MethodPost:
		return storagetest.Complete
	case q.Has("uploadId"):
		return storagetest.Abort
	case r.Method == http.MethodPut:
		return storagetest.Put
	}
	return storagetest.Remove
}

// fail answers as the service does.
func fail(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, "<Error><Code>%s</Code><Message>as the test wants it</Message></Error>", code)
}

// ofNode answers as a bucket does whose policy gives nodes the rights in docs/install/stores.md.
func ofNode(w http.ResponseWriter, r *http.Request) bool {
	creates := kind(r) == storagetest.Put || kind(r) == storagetest.Complete
	if kind(r) == storagetest.Remove || creates && !strings.Contains(r.Header.Get("If-None-Match"), "*") {
		fail(w, http.StatusForbidden, "AccessDenied")
		return true
	}
	return false
}
