package pages

import (
	"os"
	"path/filepath"
	"testing"
)

func TestBlocks(t *testing.T) {
	root := t.TempDir()
	page := "# A\n\n```sh\nmake NAME\n```\n\n1. In a list:\n\n   ```yaml\n   a:\n     b: 1\n   ```\n\n```sh\nmake c\n```\n"
	if err := os.WriteFile(filepath.Join(root, "a.md"), []byte(page), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := Find(root, "a.md", "a:")
	if want := (Block{Page: "a.md", Line: 10, Language: "yaml", Text: "a:\n  b: 1\n"}); err != nil || b != want {
		t.Errorf("%+v, %v, want %+v", b, err, want)
	}
	for _, begins := range []string{"make", "make d"} {
		if b, err := Find(root, "a.md", begins); err == nil {
			t.Errorf("%q: %+v", begins, b)
		}
	}
	if b, err = Find(root, "a.md", "make N"); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Replace("NAME", "web"); err != nil || got != "make web\n" {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := b.Replace("NODE", "web"); err == nil {
		t.Errorf("%q", got)
	}
	if _, err := Find(root, "b.md", "make"); err == nil {
		t.Error("a page that does not exist has a block")
	}
}
