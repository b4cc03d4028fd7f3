package s3_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"diapause.dev/storage"
	"diapause.dev/storage/s3"
	"diapause.dev/storage/storagetest"
)

// TestHostileAnswers: a service whose answers are no answers to the questions is an error, in bounded time and memory.
func TestHostileAnswers(t *testing.T) {
	g, b, _ := guarded(t)
	if err := b.Create(t.Context(), "one", strings.NewReader("0123456789"), 10); err != nil {
		t.Fatal(err)
	}
	page := func(truncated bool, keys ...string) string {
		s := fmt.Sprintf("<ListBucketResult><IsTruncated>%v</IsTruncated><NextContinuationToken>x"+
			"</NextContinuationToken>", truncated)
		for _, k := range keys {
			s += "<Contents><Key>" + k + "</Key><LastModified>2026-01-02T15:04:05.000Z</LastModified><Size>1</Size></Contents>"
		}
		return s + "</ListBucketResult>"
	}
	for name, body := range map[string]string{
		"the same for ever":   page(true, "p/a", "p/b"),
		"backwards":           page(false, "p/b", "p/a"),
		"of others":           page(false, "q/a"),
		"not XML":             "no",
		"no end":              "<ListBucketResult><Prefix>" + strings.Repeat("x", 9<<20),
		"a key that is twice": page(false, "p/a", "p/a"),
	} {
		g.Set(func(w http.ResponseWriter, _ *http.Request) bool {
			_, _ = w.Write([]byte(body))
			return true
		})
		if err := b.List(t.Context(), "", func(storage.ObjectInfo) error { return nil }); err == nil {
			t.Errorf("a list, %s: no error", name)
		}
	}
	whole := func(w http.ResponseWriter, r *http.Request) bool {
		w.Header().Set("Last-Modified", "Mon, 02 Jan 2006 15:04:05 GMT")
		w.Header().Set("Content-Length", "10")
		_, _ = w.Write([]byte("0123456789"))
		return kind(r) == storagetest.Get
	}
	g.Set(whole)
	if err := b.ReadAt(t.Context(), "one", make([]byte, 2), 5); err == nil {
		t.Error("a server that sends other bytes than were asked for: no error")
	}
}

// TestManyObjects: a list is longer than one answer of the service.
func TestManyObjects(t *testing.T) {
	g, b, _ := guarded(t)
	const n = 2500
	g.Set(func(w http.ResponseWriter, r *http.Request) bool {
		if kind(r) != storagetest.List {
			return false
		}
		after, s, sent := r.URL.Query().Get("start-after"), "", 0
		for i := range n {
			if key := fmt.Sprintf("p/%06d", i); key > after && sent < 1000 {
				sent++
				s += "<Contents><Key>" + key + "</Key><LastModified>2026-01-02T15:04:05.000Z</LastModified></Contents>"
			}
		}
		_, _ = fmt.Fprintf(w, "<ListBucketResult>%s<IsTruncated>%v</IsTruncated><NextContinuationToken>x"+
			"</NextContinuationToken></ListBucketResult>", s, sent == 1000)
		return true
	})
	seen := 0
	err := b.List(t.Context(), "", func(o storage.ObjectInfo) error {
		if want := fmt.Sprintf("%06d", seen); o.Name != want {
			t.Fatalf("%s, want %s", o.Name, want)
		}
		seen++
		return nil
	})
	if err != nil || seen != n {
		t.Errorf("%d objects, %v", seen, err)
	}
}

// TestParse: a location is understood whole, or refused with what is right.
func TestParse(t *testing.T) {
	for location, canonical := range map[string]string{
		"s3://bucket":                                   "s3://bucket",
		"s3://bucket/":                                  "s3://bucket",
		"s3://bucket/a/b/?region=eu-west-1":             "s3://bucket/a/b?region=eu-west-1",
		"s3://b-1?endpoint=https://h:9000":              "s3://b-1?endpoint=https://h:9000",
		"s3://b-1?endpoint=https%3A%2F%2Fh":             "s3://b-1?endpoint=https://h",
		"s3://b-1?pathStyle=true&region=r":              "s3://b-1?region=r&pathStyle=true",
		"s3://b-1?endpoint=http://[::1]:9000":           "s3://b-1?endpoint=http://[::1]:9000",
		"s3://b-1/p?pathStyle=false&endpoint=https://h": "s3://b-1/p?endpoint=https://h&pathStyle=false",
	} {
		p, err := s3.Parse(location)
		if err != nil || p.String() != canonical {
			t.Errorf("%s: %s, %v", location, p, err)
		}
	}
	for _, location := range []string{
		"", "s3:bucket", "s3://", "s3:///prefix", "s3://Bucket", "s3://a", "s3://bu..cket", "s3://bucket/../x",
		"s3://bucket/x?regoin=eu-west-1", "s3://bucket?region=", "s3://bucket?region=a&region=b", "s3://bucket?region=a/b",
		"s3://bucket?endpoint=h", "s3://bucket?endpoint=ftp://h", "s3://bucket?endpoint=https://h/path",
		"s3://bucket?endpoint=https://user:secret@h", "s3://bucket?endpoint=https://h?x", "s3://bucket?pathStyle=yes",
		"s3://bucket?endpoint=https://", "s3://bucket--use1-az4--x-s3", "s3://user:secret@bucket", "s3://bucket?%zz",
	} {
		if _, err := s3.Parse(location); err == nil || !strings.Contains(err.Error(), s3.Want) {
			t.Errorf("%q: %v", location, err)
		}
	}
}

// TestRegion: without a region nobody is asked, and the error says where to write it.
func TestRegion(t *testing.T) {
	t.Setenv("AWS_REGION", "")
	p, err := s3.Parse("s3://bucket")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s3.Open(t.Context(), p, s3.Options{}); err == nil || !strings.Contains(err.Error(), "?region=REGION") {
		t.Error(err)
	}
}
