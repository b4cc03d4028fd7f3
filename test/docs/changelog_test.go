package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// kinds are the kinds of changes, as Keep a Changelog has them, in their order.
var kinds = []string{"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}

// TestChangelog: each version has some of these kinds, each once and in their order, and what is not released is first.
func TestChangelog(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	last, versions := -1, 0
	for _, m := range regexp.MustCompile(`(?m)^(##|###) (.*)$`).FindAllSubmatch(page, -1) {
		if name := string(m[2]); len(m[1]) == 2 {
			if versions++; versions == 1 && name != "Unreleased" {
				t.Errorf("the first version is %s, want Unreleased", name)
			}
			last = -1
		} else if i := slices.Index(kinds, name); i <= last {
			t.Errorf("%q is none of %v, or not in their order", name, kinds)
		} else {
			last = i
		}
	}
	if versions == 0 {
		t.Error("no version")
	}
}
