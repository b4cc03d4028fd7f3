package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"
)

// mostWords is how long a sentence may be, in words. In fewDirs it is fewWords.
const (
	mostWords = 32
	fewWords  = 25
)

// fewDirs are the directories of pages whose sentences have all been made short.
var fewDirs = []string{
	"docs", "docs/concepts", "docs/contributing", "docs/design", "docs/install", "docs/operations", "docs/performance",
	"docs/security", "docs/tasks",
}

// limit is how many words a sentence of a page may have.
func limit(path string) int {
	if slices.Contains(fewDirs, filepath.Dir(path)) {
		return fewWords
	}
	return mostWords
}

// end is where a sentence ends.
var end = regexp.MustCompile(`[.!?:;]["')*_]*\s+`)

// sentences returns those of a page's paragraphs and lists, without its tables and code blocks.
func sentences(source []byte) (all []string) {
	tree := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(source))
	walk(tree, func(n ast.Node) {
		if n.Kind() != ast.KindParagraph && n.Kind() != ast.KindTextBlock {
			return
		}
		var b strings.Builder
		walk(n, func(n ast.Node) {
			if t, ok := n.(*ast.Text); ok {
				b.Write(t.Segment.Value(source))
				if t.SoftLineBreak() {
					b.WriteByte(' ')
				}
			}
		})
		all = append(all, end.Split(b.String(), -1)...)
	})
	return all
}

// TestSentences: a sentence has one idea, and at most as many words as limit says. A colon or a semicolon ends one,
// too.
func TestSentences(t *testing.T) {
	for path := range pages(t) {
		if path == "CHANGELOG.md" { // it is written once, and read once
			continue
		}
		b, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		var long []string
		for _, s := range sentences(b) {
			if len(strings.Fields(s)) > limit(path) {
				long = append(long, s)
			}
		}
		if len(long) > 0 {
			t.Errorf("%s has %d sentences of more than %d words:\n%s", path, len(long), limit(path), strings.Join(long, "\n"))
		}
	}
}

// british are words that American English writes otherwise.
var british = regexp.MustCompile(`(?i)\b(\w*(behaviour|neighbour|colour|favour|honour)\w*|licences?|defences?|` +
	`offences?|centres?|artefacts?|catalogues?|cancell(ed|ing)|label(led|ling)|model(led|ling)|grey|analys(e|ed|es|ing)|` +
	`(recogn|organ|initial|serial|optim|normal|summar|synchron|minim|maxim|util|author|custom)is(e|ed|es|ing|ation)s?)\b`)

// TestSpelling: pages are in American English, as the API is.
func TestSpelling(t *testing.T) {
	for path := range pages(t) {
		source, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		tree := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(source))
		walk(tree, func(n ast.Node) {
			s, ok := n.(*ast.Text)
			if !ok || n.Parent().Kind() == ast.KindCodeSpan {
				return
			}
			if word := british.Find(s.Segment.Value(source)); word != nil {
				t.Errorf("%s: %s", path, word)
			}
		})
	}
}
