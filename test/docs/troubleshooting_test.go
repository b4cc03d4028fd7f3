package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/yuin/goldmark"
	markdown "github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	tables "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/text"
)

// troubleshooting is the page that is searched for a message.
const troubleshooting = "docs/operations/troubleshooting.md"

// columns are those of its tables.
var columns = []string{"message", "cause", "fix", "data lost"}

// TestTroubleshooting: each reason and the beginning of each event is a message on the page, with what to do.
func TestTroubleshooting(t *testing.T) {
	messages := entries(t)
	for name, value := range reasons(t) {
		if !slices.ContainsFunc(messages, func(m string) bool { return strings.Contains(m, "`"+value+"`") }) {
			t.Errorf("%s: no entry of %s has the message `%s`", name, troubleshooting, value)
		}
	}
	events := eventTypes(t)
	for begin := range events {
		if !slices.ContainsFunc(messages, func(m string) bool { return strings.Contains(m, "`"+begin) }) {
			t.Errorf("no entry of %s has the event `%s…`", troubleshooting, begin)
		}
	}
	if len(events) < 15 {
		t.Errorf("%d texts of events: %v", len(events), events)
	}
}

// entries returns the messages on the page: the first cell of each row. Its other cells must say why, what to do, and
// whether data is lost.
func entries(t *testing.T) (messages []string) {
	t.Helper()
	source, err := os.ReadFile(filepath.Join(root, troubleshooting))
	if err != nil {
		t.Fatal(err)
	}
	tree := goldmark.New(goldmark.WithExtensions(extension.GFM)).Parser().Parse(text.NewReader(source))
	walk(tree, func(n markdown.Node) {
		switch n.(type) {
		case *tables.TableHeader:
			if got := cells(n, source); !slices.Equal(got, columns) {
				t.Errorf("%s has a table of %q, want %q", troubleshooting, got, columns)
			}
		case *tables.TableRow:
			row := cells(n, source)
			if slices.Contains(row, "") || !strings.HasPrefix(row[3], "no") && !strings.HasPrefix(row[3], "yes") {
				t.Errorf("%s: %q does not say why, what to do, and whether data is lost: yes or no", troubleshooting, row)
			}
			messages = append(messages, row[0])
		}
	})
	return messages
}

// cells returns the cells of a row, with backticks around their code.
func cells(row markdown.Node, source []byte) (all []string) {
	for c := row.FirstChild(); c != nil; c = c.NextSibling() {
		var b strings.Builder
		walk(c, func(n markdown.Node) {
			if s, ok := n.(*markdown.Text); ok && n.Parent().Kind() == markdown.KindCodeSpan {
				b.WriteString("`" + string(s.Segment.Value(source)) + "`")
			} else if ok {
				b.Write(s.Segment.Value(source))
			}
		})
		all = append(all, b.String())
	}
	return all
}

// reasons returns the reasons of conditions and events, by the names of their constants. The reason that most events
// have says nothing.
func reasons(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	for _, dir := range []string{"api/podsnapshot/v1", "api/sleeppolicy/v1alpha1"} {
		eachFile(t, dir, func(f *ast.File) {
			for name, value := range constants(f) {
				if strings.HasPrefix(name, "Reason") {
					all[dir+"."+name] = value
				}
			}
		})
	}
	if len(all) < 25 {
		t.Fatalf("%d reasons", len(all))
	}
	return all
}

// noticed is the file that has all events.
const noticed = "agent/kube/notice/events.go"

// eventTypes returns the types of all events, by the beginnings of their texts. Of what is only the message of a
// condition, it is none.
func eventTypes(t *testing.T) map[string]string {
	t.Helper()
	types := make(map[string]string)
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, noticed), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		event, ok := n.(*ast.CompositeLit)
		if !ok || len(event.Elts) != 4 {
			return true
		}
		if text := leading(event.Elts[3]); isMessage(text) {
			types[beginning(text)] = event.Elts[0].(*ast.Ident).Name
		}
		return true
	})
	return types
}

// leading returns the text that an expression begins with.
func leading(x ast.Expr) string {
	if sum, ok := x.(*ast.BinaryExpr); ok {
		return leading(sum.X)
	}
	b, ok := x.(*ast.BasicLit)
	if !ok {
		return ""
	}
	s, err := strconv.Unquote(b.Value)
	if err != nil {
		return ""
	}
	return s
}

// isMessage reports whether a text is for people: it begins with a capital letter, and has several words.
func isMessage(s string) bool {
	return s != "" && unicode.IsUpper(rune(s[0])) && strings.Contains(s, " ")
}

// beginning returns the first words of a message, up to what is filled in.
func beginning(s string) string {
	const most = 6
	s, _, _ = strings.Cut(s, "%")
	words := strings.Fields(s)
	return strings.Join(words[:min(len(words), most)], " ")
}

// eachFile calls f with each Go file below a directory of the repository that is no test.
func eachFile(t *testing.T, dir string, f func(*ast.File)) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err == nil {
			f(file)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
