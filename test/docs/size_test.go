package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mostOfAll is the largest size of all pages of docs together, in bytes. Help of commands, which a test writes, does
// not count. Neither do rows of fields, which TestFields compares with the definitions of the objects.
const mostOfAll = 331 << 10

// generated is such a text.
var generated = regexp.MustCompile("(?s:<!-- BEGIN GENERATED.*?<!-- END GENERATED)|(?m:^\\| `(?:spec|status)\\..*\n)")

// TestSizes: the pages of docs together can be read in a day.
func TestSizes(t *testing.T) {
	all := 0
	for path := range pages(t) {
		if !strings.HasPrefix(path, "docs/") {
			continue
		}
		page, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		all += len(generated.ReplaceAll(page, nil))
	}
	if all > mostOfAll {
		t.Errorf("the pages of docs have %d bytes, may have %d: say each fact once", all, mostOfAll)
	}
}
