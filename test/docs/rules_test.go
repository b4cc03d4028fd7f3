package docs

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	tables "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
)

// update writes what is known of the pages: see [known].
var update = flag.Bool("update", false, "write testdata/known.txt")

// known is the file of what does not hold yet: a rule, a page, and how often the page breaks it. What is not in it is
// 0. Counts may only become smaller.
const known = "testdata/known.txt"

// The limits of the rules. Each is what a reader takes in at one look.
const (
	mostLine    = 160 // characters of a line of text
	mostColumns = 5   // of a table
	mostCell    = 140 // visible characters of a cell
	mostHeading = 60  // characters of a heading
	mostAverage = 18  // words of a sentence, over a page
	mostFigures = 2   // numbers with a unit in a sentence
)

// document is a page that rules look at.
type document struct {
	path   string
	source []byte
	tree   ast.Node
}

// rules are named as the checks of a page are. Each returns what breaks it, and why.
var rules = map[string]func(*document) []string{
	"average":  average,
	"cells":    largeCells,
	"density":  dense,
	"fences":   fences,
	"figures":  figures,
	"headings": headings,
	"lines":    longLines,
	"words":    func(d *document) []string { return oldWords(d.prose(), pageGlossary) },
}

// unruled are pages to which no rule applies: a changelog is written once, and templates are forms.
func unruled(path string) bool { return path == "CHANGELOG.md" || strings.HasPrefix(path, ".github/") }

// TestRules: pages keep the rules, and break none more often than is known.
func TestRules(t *testing.T) {
	have := make(map[string]int)
	want := readKnown(t)
	for path := range pages(t) {
		if unruled(path) {
			continue
		}
		d := read(t, path)
		for rule, broken := range rules {
			key := rule + " " + path
			found := broken(d)
			if have[key] = len(found); len(found) > want[key] && !*update {
				t.Errorf("%s breaks the rule %q %d times, and %s has %d:\n\t%s", path, rule, len(found), known, want[key],
					strings.Join(found, "\n\t"))
			}
		}
	}
	if *update {
		writeKnown(t, have)
		return
	}
	for key, n := range want {
		if have[key] < n {
			t.Errorf("%s has %q %d times, and it is %d: run go test ./test/docs -run TestRules -update", known, key, n,
				have[key])
		}
	}
}

func readKnown(t *testing.T) map[string]int {
	t.Helper()
	b, err := os.ReadFile(known)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]int)
	for line := range strings.Lines(string(b)) {
		var rule, path string
		var n int
		if _, err := fmt.Sscanf(line, "%s %s %d", &rule, &path, &n); err != nil {
			t.Fatalf("%s: %q: %v", known, line, err)
		}
		all[rule+" "+path] = n
	}
	return all
}

func writeKnown(t *testing.T, counts map[string]int) {
	t.Helper()
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		if counts[key] > 0 {
			fmt.Fprintf(&b, "%s %d\n", key, counts[key])
		}
	}
	if err := os.WriteFile(known, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) *document {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	return newDocument(path, source)
}

func newDocument(path string, source []byte) *document {
	tree := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(source))
	return &document{path: path, source: source, tree: tree}
}

// visible returns what a reader sees of a node: without marks, and with a name in place of code.
func (d *document) visible(n ast.Node, code string) string {
	var b strings.Builder
	walk(n, func(n ast.Node) {
		switch s, ok := n.(*ast.Text); {
		case !ok:
		case n.Parent().Kind() == ast.KindCodeSpan && code != "":
			b.WriteString(code)
		default:
			b.Write(s.Segment.Value(d.source))
			if s.SoftLineBreak() || s.HardLineBreak() {
				b.WriteByte(' ')
			}
		}
	})
	return b.String()
}

// prose returns the page's paragraphs, list items, headings and cells, with X in place of code.
func (d *document) prose() (all []string) {
	walk(d.tree, func(n ast.Node) {
		switch n.Kind() {
		case ast.KindParagraph, ast.KindTextBlock, ast.KindHeading, tables.KindTableCell:
			all = append(all, d.visible(n, "X"))
		}
	})
	return all
}

// fullStop is where a sentence ends that may have a colon.
var fullStop = regexp.MustCompile(`[.!?]["')*_]*\s+`)

// whole returns the sentences of paragraphs and lists, from one full stop to the next.
func (d *document) whole() (all []string) {
	walk(d.tree, func(n ast.Node) {
		if n.Kind() == ast.KindParagraph || n.Kind() == ast.KindTextBlock {
			all = append(all, fullStop.Split(d.visible(n, "X"), -1)...)
		}
	})
	return all
}

// longLines returns lines of text with more than mostLine characters. Tables, code and bare links are free.
func longLines(d *document) (found []string) {
	code := false
	for line := range strings.Lines(string(d.source)) {
		line = strings.TrimRight(line, "\n")
		trimmed := strings.TrimSpace(line)
		if strings.HasPrefix(trimmed, "```") {
			code = !code
		}
		free := code || strings.HasPrefix(trimmed, "|") || !strings.Contains(trimmed, " ")
		if n := utf8.RuneCountInString(line); !free && n > mostLine {
			found = append(found, fmt.Sprintf("break the line of %d characters: %.60s…", n, line))
		}
	}
	return found
}

// average returns the mean length of the page's sentences, if it is more than mostAverage words.
func average(d *document) []string {
	words, all := 0, sentences(d.source)
	for _, s := range all {
		words += len(strings.Fields(s))
	}
	if len(all) == 0 || words <= mostAverage*len(all) {
		return nil
	}
	return []string{fmt.Sprintf("shorten sentences: they have %d words on average, want %d", words/len(all), mostAverage)}
}

// largeCells returns tables with more than mostColumns columns, and cells with more than mostCell visible characters.
func largeCells(d *document) (found []string) {
	walk(d.tree, func(n ast.Node) {
		switch n.Kind() {
		case tables.KindTableHeader:
			if n.ChildCount() > mostColumns {
				found = append(found, fmt.Sprintf("split the table of %d columns: %.60s", n.ChildCount(), d.visible(n, "")))
			}
		case tables.KindTableCell:
			s := d.visible(n, "")
			if d.path == objects && n.PreviousSibling() != nil { // what the API server says of a value is as long as it is
				return
			}
			if c := utf8.RuneCountInString(s); c > mostCell {
				found = append(found, fmt.Sprintf("shorten the cell of %d characters: %.60s…", c, s))
			}
		}
	})
	return found
}

// proper are words that begin with a capital wherever they stand. Names with a capital or a digit inside are, too.
var proper = strings.Fields(`Diapause Kubernetes Google Cloud Storage Amazon Azure Blob Prometheus Debian Linux Go
	Python Redis Node Agent Sandbox Sandboxes Agents Cilium Calico Flannel Lease Ready Deployment Service Secret
	StatefulSet Job Pod Compose I`)

// headings returns headings that are not in sentence case, too long, or a level too deep.
func headings(d *document) (found []string) {
	level := 0
	walk(d.tree, func(n ast.Node) {
		h, ok := n.(*ast.Heading)
		if !ok {
			return
		}
		s := d.visible(h, "")
		if h.Level > level+1 {
			found = append(found, fmt.Sprintf("%q has level %d below %d", s, h.Level, level))
		}
		level = h.Level
		if n := utf8.RuneCountInString(s); n > mostHeading {
			found = append(found, fmt.Sprintf("shorten the heading of %d characters: %q", n, s))
		}
		for i, word := range strings.Fields(d.visible(h, "x")) {
			word = strings.TrimSuffix(strings.Trim(word, ".,:;()"), "'s")
			if i > 0 && isTitle(word) && !slices.Contains(proper, word) {
				found = append(found, fmt.Sprintf("write %q of the heading %q with a small letter", word, s))
			}
		}
	})
	return found
}

// isTitle reports whether of a word the first letter alone is a capital.
func isTitle(word string) bool {
	for i, r := range word {
		if (i == 0) != unicode.IsUpper(r) || unicode.IsDigit(r) {
			return false
		}
	}
	return word != ""
}

// fences returns blocks of code without a language, and commands with a prompt but without their output.
func fences(d *document) (found []string) {
	walk(d.tree, func(n ast.Node) {
		f, ok := n.(*ast.FencedCodeBlock)
		if !ok {
			return
		}
		prompts, first := 0, ""
		for i := range f.Lines().Len() {
			line := f.Lines().At(i)
			s := string(line.Value(d.source))
			if first == "" {
				first = strings.TrimSpace(s)
			}
			if strings.HasPrefix(s, "$ ") {
				prompts++
			}
		}
		if f.Language(d.source) == nil {
			found = append(found, fmt.Sprintf("give the block a language, such as console or text: %.60s", first))
		}
		if prompts > 0 && prompts == f.Lines().Len() {
			found = append(found, fmt.Sprintf("remove the prompt, so that the block can be copied: %.60s", first))
		}
	})
	return found
}

// figure is a number with a unit.
var figure = regexp.MustCompile(`\b[0-9][0-9.,]*\s?(%|(ms|s|min|h|seconds?|minutes?|hours?|days?|weeks?|` +
	`KB|KiB|MB|MiB|GB|GiB|TiB|bytes?|cores?|processors?|CPUs?)\b)`)

// figures returns sentences with more than mostFigures numbers with a unit. Pages of results have them in plenty.
func figures(d *document) (found []string) {
	if strings.HasPrefix(d.path, "docs/performance/") || strings.HasPrefix(d.path, "bench/") {
		return nil
	}
	for _, s := range d.whole() {
		if n := len(figure.FindAllString(s, -1)); n > mostFigures {
			found = append(found, fmt.Sprintf("make a table or a list of %d figures: %s", n, s))
		}
	}
	return found
}

// pause is a colon or a semicolon of a sentence, and not of a time, an address or a name.
var pause = regexp.MustCompile(`[;:](\s|$)`)

// dense returns sentences with more than one semicolon or colon, or more than one pair of parentheses.
func dense(d *document) (found []string) {
	for _, s := range d.whole() {
		if len(pause.FindAllString(strings.TrimSpace(s), -1)) > 1 {
			found = append(found, "split at a semicolon or colon: "+s)
		}
		if strings.Count(s, "(") > 1 {
			found = append(found, "split at parentheses: "+s)
		}
	}
	return found
}

// tableRows returns the rows of those tables of a page whose first column has this name. Code keeps its backticks.
func tableRows(t *testing.T, path, first string) (all [][]string) {
	t.Helper()
	d := read(t, path)
	mine := false
	walk(d.tree, func(n ast.Node) {
		switch n.Kind() {
		case tables.KindTableHeader:
			mine = cells(n, d.source)[0] == first
		case tables.KindTableRow:
			if mine {
				all = append(all, cells(n, d.source))
			}
		}
	})
	return all
}
