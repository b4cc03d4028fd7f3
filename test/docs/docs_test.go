// Package docs checks the pages of the repository: their form and words, their links, and that what they say of names
// in code is so. Beside the tests here, those of the programs compare docs/reference with their flags and their help:
// see package help. Where a page is generated, or testdata is, the flag -update of the test writes it.
package docs

import (
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// root is the repository, seen from this package.
const root = "../.."

// index is where a reader looks for a page.
const index = "docs/README.md"

// most is the largest size of a page in a directory of docs, in bytes.
const most = 24 << 10

// sizes are the largest sizes of further pages.
var sizes = map[string]int{"README.md": 8 << 10, index: 3 << 10, "docs/quickstart.md": 7 << 10}

// page is a Markdown file of the repository.
type page struct {
	path   string
	size   int
	titles int      // headings of the first level
	ids    []string // of its headings, as links name them
	links  []string
}

// pages reads all pages, by their paths.
func pages(t *testing.T) map[string]*page {
	t.Helper()
	all := make(map[string]*page)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root:
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md":
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		all[name] = parse(name, b)
		return err
	})
	if err != nil || len(all) < 10 {
		t.Fatalf("%d pages, %v", len(all), err)
	}
	return all
}

func parse(path string, source []byte) *page {
	p := &page{path: path, size: len(source)}
	tree := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(source))
	walk(tree, func(n ast.Node) {
		switch n := n.(type) {
		case *ast.Heading:
			if n.Level == 1 {
				p.titles++
			}
			p.ids = append(p.ids, unique(p.ids, slug(words(n, source))))
		case *ast.Link:
			p.links = append(p.links, string(n.Destination))
		case *ast.Image:
			p.links = append(p.links, string(n.Destination))
		}
	})
	return p
}

func walk(n ast.Node, f func(ast.Node)) {
	f(n)
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		walk(c, f)
	}
}

// words returns the text of a heading, without its marks.
func words(n ast.Node, source []byte) string {
	var b strings.Builder
	walk(n, func(n ast.Node) {
		if t, ok := n.(*ast.Text); ok {
			b.Write(t.Segment.Value(source))
		}
	})
	return b.String()
}

// slug returns the id that GitHub gives a heading: lower case, spaces as hyphens, and without punctuation.
func slug(heading string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case r == '-', r == '_', unicode.IsLetter(r), unicode.IsDigit(r):
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
}

func unique(taken []string, id string) string {
	for i := 0; ; i++ {
		if name := id + strings.Repeat(fmt.Sprintf("-%d", i), min(i, 1)); !slices.Contains(taken, name) {
			return name
		}
	}
}

// target returns what a link of p leads to: a path in the repository, and an id in it. It returns false for links that
// lead elsewhere.
func (p *page) target(link string) (path, id string, ok bool) {
	u, err := url.Parse(link)
	if err != nil || u.Scheme != "" {
		return "", "", false
	}
	if u.Path == "" {
		return p.path, u.Fragment, true
	}
	return filepath.Join(filepath.Dir(p.path), u.Path), u.Fragment, true
}

// TestLinks: what a link in a page leads to is there: the file, and the heading in it.
func TestLinks(t *testing.T) {
	all := pages(t)
	for _, p := range all {
		for _, link := range p.links {
			path, id, ok := p.target(link)
			if !ok {
				continue
			}
			if _, err := os.Stat(filepath.Join(root, path)); err != nil {
				t.Errorf("%s: link %s: %v", p.path, link, err)
			} else if to := all[path]; to != nil && id != "" && !slices.Contains(to.ids, id) {
				t.Errorf("%s: link %s: %s has no such heading", p.path, link, path)
			}
		}
	}
}

// TestReachable: a reader who starts at the index comes to each page of docs.
func TestReachable(t *testing.T) {
	all, seen := pages(t), map[string]bool{index: true}
	for todo := []string{index}; len(todo) > 0; todo = todo[1:] {
		for _, link := range all[todo[0]].links {
			path, _, ok := all[todo[0]].target(link)
			if ok && all[path] != nil && !seen[path] {
				seen[path], todo = true, append(todo, path)
			}
		}
	}
	for path := range all {
		if strings.HasPrefix(path, "docs/") && !seen[path] {
			t.Errorf("%s: no link leads to it from %s", path, index)
		}
	}
}

// TestReaders: each page of docs but the index says first for whom it is.
func TestReaders(t *testing.T) {
	for path := range pages(t) {
		if !strings.HasPrefix(path, "docs/") || path == index {
			continue
		}
		b, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		if _, text, _ := strings.Cut(string(b), "\n\n"); !strings.HasPrefix(text, "For ") {
			t.Errorf("%s does not begin with its readers, as in: For operators.", path)
		}
	}
}

// TestForm: pages have one title, and are no larger than they may be.
func TestForm(t *testing.T) {
	for path, p := range pages(t) {
		if p.titles != 1 {
			t.Errorf("%s has %d titles", path, p.titles)
		}
		limit, ok := sizes[path]
		if !ok && strings.Count(path, "/") > 1 && strings.HasPrefix(path, "docs/") {
			limit, ok = most, true
		}
		if ok && p.size > limit {
			t.Errorf("%s has %d bytes, may have %d", path, p.size, limit)
		}
	}
}
