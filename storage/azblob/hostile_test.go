package azblob_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"diapause.dev/storage"
	"diapause.dev/storage/azblob"
	"diapause.dev/storage/storagetest"
)

func TestOpenFails(t *testing.T) {
	_, err := azblob.Open(t.Context(), place(t, server, "no-such-container", "x"), azblob.Options{})
	if !errors.Is(err, storage.ErrUnavailable) || errors.Is(err, storage.ErrNotFound) {
		t.Errorf("no container: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := azblob.Open(ctx, place(t, "http://127.0.0.1:1", "container", "x"), azblob.Options{}); !errors.Is(err,
		context.Canceled) {
		t.Errorf("without any patience: %v", err)
	}
}

// TestHierarchy: an account whose directories are objects is refused.
func TestHierarchy(t *testing.T) {
	g := storagetest.NewGuard(t, server, kind)
	g.Set(func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("X-Ms-Is-Hns-Enabled", "true")
		return kind(r) == storagetest.Other
	})
	_, err := azblob.Open(t.Context(), place(t, g.URL, newContainer(t), ""), azblob.Options{})
	if err == nil || !strings.Contains(err.Error(), "hierarchical namespace") {
		t.Error(err)
	}
}

// TestDigest: the service refuses bytes that changed on the way, in one request and in blocks.
func TestDigest(t *testing.T) {
	g, b, _ := service().Guarded(t)
	g.Set(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Body != nil && r.ContentLength > 0 {
			r.Body = flipped{r.Body}
		}
		return false
	})
	for _, size := range []int{100, storagetest.PartSize + 1} {
		if err := storagetest.CreateStream(t.Context(), b, "one", storagetest.Bytes(1, size)); !errors.Is(err,
			storage.ErrUnavailable) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
	if _, err := b.Stat(t.Context(), "one"); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("it was made: %v", err)
	}
}

// TestBlocksGone: who completes an upload whose blocks another writer's object has removed learns that there is one.
func TestBlocksGone(t *testing.T) {
	g, b, _ := service().Guarded(t)
	g.Set(service().Failing(storagetest.Complete, 1, http.StatusBadRequest, "InvalidBlockList"))
	err := storagetest.CreateStream(t.Context(), b, "one", storagetest.Bytes(1, storagetest.PartSize+1))
	if err == nil || errors.Is(err, storage.ErrExists) {
		t.Errorf("without another's: %v", err)
	}
	if err := b.Create(t.Context(), "two", strings.NewReader("x"), 1); err != nil {
		t.Fatal(err)
	}
	g.Set(service().Failing(storagetest.Complete, 1, http.StatusBadRequest, "InvalidBlockList"))
	err = storagetest.CreateStream(t.Context(), b, "two", storagetest.Bytes(1, storagetest.PartSize+1))
	if !errors.Is(err, storage.ErrExists) {
		t.Errorf("with another's: %v", err)
	}
}

// TestNodeRights: with the rights that the documentation gives to nodes, snapshots are written and read, and nothing is
// deleted.
func TestNodeRights(t *testing.T) {
	g := storagetest.NewGuard(t, server, kind)
	g.Set(func(w http.ResponseWriter, r *http.Request) bool {
		denied := kind(r) == storagetest.Remove || kind(r) == storagetest.Other
		if denied {
			fail(w, http.StatusForbidden, "AuthorizationPermissionMismatch")
		}
		return denied
	})
	storagetest.WantNode(t, open(t, g.URL, newContainer(t), "p"))
}

// TestHostileOverwrites: a service is known that overwrites what it shall only create, in a put, in a list of blocks,
// or in both. One that does not is not accused, and nothing changes there.
func TestHostileOverwrites(t *testing.T) {
	all := []string{"a put", "a list of blocks"}
	for what, lying := range map[string][]string{
		"honest": nil, "put": {storagetest.Put}, "blocks": {storagetest.Complete},
		"both": {storagetest.Put, storagetest.Complete},
	} {
		g, name := storagetest.NewTLSGuard(t, server, kind), newContainer(t)
		b := openWith(t, g.URL, name, "p", azblob.Options{
			Credentials: credentials(t, "sas_token="+signature(t, name)),
			TLS:         g.Client().Transport.(*http.Transport).TLSClientConfig,
		})
		g.Set(func(_ http.ResponseWriter, r *http.Request) bool {
			if slices.Contains(lying, kind(r)) {
				r.Header.Del("If-None-Match")
			}
			return false
		})
		var lies []string
		for i, k := range []string{storagetest.Put, storagetest.Complete} {
			if slices.Contains(lying, k) {
				lies = append(lies, all[i])
			}
		}
		storagetest.WantLies(t, what, b, all, lies)
	}
}

// TestCheckedOften: a check leaves nothing that becomes more with each.
func TestCheckedOften(t *testing.T) {
	g, b, name := service().Guarded(t)
	if err := b.Create(t.Context(), "one", strings.NewReader("x"), 1); err != nil {
		t.Fatal(err)
	}
	blocks := make(map[string]bool)
	g.Set(func(_ http.ResponseWriter, r *http.Request) bool {
		if kind(r) == storagetest.Part {
			blocks[r.URL.Query().Get("blockid")] = true
		}
		return false
	})
	for range 3 {
		if err := open(t, g.URL, name, "p").CheckCreateOnly(t.Context(), "one"); err != nil {
			t.Error(err)
		}
	}
	if len(blocks) != 1 {
		t.Errorf("%d blocks", len(blocks))
	}
}

// TestKinds: every operation reports what the service answers as the kind that it is.
func TestKinds(t *testing.T) {
	service().WantKinds(t, []storagetest.Answered{
		{http.StatusNotFound, "BlobNotFound", storage.ErrNotFound},
		{http.StatusNotFound, "ContainerNotFound", storage.ErrUnavailable},
		{http.StatusConflict, "BlobAlreadyExists", storage.ErrExists},
		{http.StatusConflict, "ContainerBeingDeleted", storage.ErrUnavailable},
		{http.StatusConflict, "BlobArchived", storage.ErrUnavailable},
		{http.StatusConflict, "BlobImmutableDueToPolicy", storage.ErrDenied},
		{http.StatusPreconditionFailed, "LeaseIdMissing", storage.ErrUnavailable},
		{http.StatusRequestedRangeNotSatisfiable, "InvalidRange", storage.ErrTruncated},
		{http.StatusUnauthorized, "NoAuthenticationInformation", storage.ErrDenied},
		{http.StatusForbidden, "AuthenticationFailed", storage.ErrDenied},
		{http.StatusBadRequest, "InvalidAuthenticationInfo", storage.ErrDenied},
		{http.StatusTemporaryRedirect, "", storage.ErrUnavailable},
	})
}

// TestHostileAnswers: a service whose answers are no answers to the questions is an error, in bounded time and memory.
func TestHostileAnswers(t *testing.T) {
	g, b, _ := service().Guarded(t)
	if err := b.Create(t.Context(), "one", strings.NewReader("0123456789"), 10); err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string]string{
		"the same for ever":   page("next", blob("p/a"), blob("p/b")),
		"nothing for ever":    page("next"),
		"backwards":           page("", blob("p/b"), blob("p/a")),
		"a key that is twice": page("", blob("p/a"), blob("p/a")),
		"of others":           page("", blob("q/a")),
		"without a size":      page("", "<Blob><Name>p/a</Name><Properties></Properties></Blob>"),
		"without a name":      page("", "<Blob></Blob>"),
		"no list":             "<EnumerationResults></EnumerationResults>",
		"not XML":             "no",
		"no end":              "<EnumerationResults><Prefix>" + strings.Repeat("x", 9<<20),
	} {
		g.Set(func(w http.ResponseWriter, _ *http.Request) bool {
			_, _ = w.Write([]byte(body))
			return true
		})
		if err := b.List(t.Context(), "", func(storage.ObjectInfo) error { return nil }); err == nil {
			t.Errorf("a list, %s: no error", name)
		}
	}
	g.Set(func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Content-Length", "10")
		_, _ = w.Write([]byte("0123456789"))
		return kind(r) == storagetest.Get
	})
	if err := b.ReadAt(t.Context(), "one", make([]byte, 2), 5); err == nil {
		t.Error("a server that sends other bytes than were asked for: no error")
	}
	g.Set(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusOK)
		return true
	})
	if _, err := b.Stat(t.Context(), "one"); err == nil {
		t.Error("a server that says nothing of an object: no error")
	}
}

// TestManyObjects: a list is longer than one answer of the service, and an answer may have no object though more come.
func TestManyObjects(t *testing.T) {
	g, b, _ := service().Guarded(t)
	const n = 25
	g.Set(func(w http.ResponseWriter, r *http.Request) bool {
		var i int
		_, _ = fmt.Sscan(r.URL.Query().Get("marker"), &i)
		next := fmt.Sprint(i + 1)
		if i == 2*n {
			next = ""
		}
		body := page(next)
		if i%2 == 1 {
			body = page(next, blob(fmt.Sprintf("p/%06d", i/2)))
		}
		_, _ = w.Write([]byte(body))
		return true
	})
	seen := 0
	err := b.List(t.Context(), "", func(o storage.ObjectInfo) error {
		if want := fmt.Sprintf("%06d", seen); o.Name != want || o.Size != 7 {
			t.Fatalf("%+v, want %s", o, want)
		}
		seen++
		return nil
	})
	if err != nil || seen != n {
		t.Errorf("%d objects, %v", seen, err)
	}
}

func page(next string, blobs ...string) string {
	return "<EnumerationResults><Blobs>" + strings.Join(blobs, "") + "</Blobs><NextMarker>" + next +
		"</NextMarker></EnumerationResults>"
}

func blob(name string) string {
	return "<Blob><Name>" + name + "</Name><Properties><Last-Modified>Fri, 02 Jan 2026 15:04:05 GMT</Last-Modified>" +
		"<Content-Length>7</Content-Length></Properties></Blob>"
}

// TestParse: a location is understood whole, or refused with what is right.
func TestParse(t *testing.T) {
	for location, canonical := range map[string]string{
		"azblob://acc/con":                                   "azblob://acc/con",
		"azblob://acc/con/":                                  "azblob://acc/con",
		"azblob://acc/c-1/a/b/":                              "azblob://acc/c-1/a/b",
		"azblob://acc/con/a?endpoint=https%3A%2F%2Fh:1":      "azblob://acc/con/a?endpoint=https://h:1",
		"azblob://acc/con?endpoint=http://127.0.0.1:100/acc": "azblob://acc/con?endpoint=http://127.0.0.1:100/acc",
	} {
		p, err := azblob.Parse(location)
		if err != nil || p.String() != canonical {
			t.Errorf("%s: %s, %v", location, p, err)
		}
	}
	for _, location := range []string{
		"", "azblob:acc/con", "azblob://", "azblob://acc", "azblob:///con", "azblob://ac/con", "azblob://Acc/con",
		"azblob://my-acc/con", "azblob://acc/co", "azblob://acc/-con", "azblob://acc/con-", "azblob://acc/c--n",
		"azblob://acc/Con", "azblob://acc/$web", "azblob://acc/con/../x", "azblob://acc/con/a./b", "azblob://acc/con?x=y",
		"azblob://acc/con?endpoint=", "azblob://acc/con?endpoint=h", "azblob://acc/con?endpoint=ftp://h",
		"azblob://acc/con?endpoint=https://h/other", "azblob://acc/con?endpoint=https://user:secret@h",
		"azblob://acc/con?endpoint=https://h&endpoint=https://h", "azblob://acc/con?sig=x", "azblob://acc/con?%zz",
		"azblob://user:secret@acc/con", "azblob://acc/" + strings.Repeat("c", 64),
	} {
		if _, err := azblob.Parse(location); err == nil || !strings.Contains(err.Error(), azblob.Want) {
			t.Errorf("%q: %v", location, err)
		}
	}
}
