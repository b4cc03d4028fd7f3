package fast

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// TestUpstreamText: what is written is what was read.
func TestUpstreamText(t *testing.T) {
	u, err := Expected()
	if err != nil || u.String() != upstreamList || len(u.Files) == 0 {
		t.Errorf("patches/UPSTREAM is read as %d files, %v", len(u.Files), err)
	}
	for _, text := range []string{"x\n", heading + "a b c\n", heading + Module + " v1\na b ../c\n"} {
		if _, err := parseUpstream(text); err == nil {
			t.Errorf("%q is taken for a list", text)
		}
	}
}

// TestOtherResult: files that the patches leave in another state than the list says are errors, which name file and
// patch, and so is a patch of a file that is not in the list.
func TestOtherResult(t *testing.T) {
	patches, err := series()
	if err != nil {
		t.Fatal(err)
	}
	const file = "pkg/sentry/mm/address_space.go"
	u := Upstream{Version: "v1", Files: []Touched{{Path: file, Before: None, After: "other"}}}
	err = u.checkAfter(t.TempDir(), patches)
	if err == nil || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "patches/0004-") {
		t.Errorf("another result: %v", err)
	}
	err = u.checkListed(patches)
	if err == nil || !strings.Contains(err.Error(), "patches/0001-") || !strings.Contains(err.Error(), "does not list") {
		t.Errorf("a file that is not listed: %v", err)
	}
}

const onePatch = `diff --git a/pkg/a.go b/pkg/a.go
--- a/pkg/a.go
+++ b/pkg/a.go
@@ -1,3 +1,3 @@
 package pkg
-const a = 1
+const a = 2
 // End.
`

// TestExactly: a patch applies to exactly its lines in their places, and to nothing outside of the tree.
func TestExactly(t *testing.T) {
	for _, v := range []struct{ name, patch, file, want string }{
		{"its lines", onePatch, "package pkg\nconst a = 1\n// End.\n", ""},
		{"other lines", onePatch, "package pkg\nconst a = 3\n// End.\n", "pkg/a.go"},
		{"another place", onePatch, "\npackage pkg\nconst a = 1\n// End.\n", "pkg/a.go"},
		{"a file that is there", added("pkg/a.go"), "package pkg\n", "there already"},
		{"a file above", added("../a.go"), "package pkg\n", "below the root"},
	} {
		t.Run(v.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "pkg", "a.go")
			if err := writeFile(path, []byte(v.file)); err != nil {
				t.Fatal(err)
			}
			p, err := readPatch(fstest.MapFS{"0001-x.patch": {Data: []byte(v.patch)}}, "0001-x.patch")
			if err != nil {
				t.Fatal(err)
			}
			err = p.apply(dir)
			if v.want == "" {
				if data, errRead := os.ReadFile(path); err != nil || errRead != nil || !strings.Contains(string(data), "a = 2") {
					t.Errorf("%q, %v, %v", data, err, errRead)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), v.want) || !strings.Contains(err.Error(), "0001-x.patch") {
				t.Errorf("got %v, want an error with %q", err, v.want)
			}
		})
	}
	if _, err := readPatch(fstest.MapFS{"e": {Data: []byte("a text\n")}}, "e"); err == nil {
		t.Error("a patch of no file is none")
	}
}

// added is a patch that adds a file.
func added(path string) string {
	return "diff --git a/" + path + " b/" + path + "\nnew file mode 100644\n--- /dev/null\n+++ b/" + path +
		"\n@@ -0,0 +1 @@\n+package a\n"
}
