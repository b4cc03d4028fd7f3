package docs

import (
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestMetrics: the page of metrics has the table of those that the programs register, with what these say of them. The
// page on monitoring says of each what it tells, and its expressions name no others.
func TestMetrics(t *testing.T) {
	var rows, names []string
	for _, dir := range []string{"agent", "cmd", "runsc"} {
		eachFile(t, dir, func(f *ast.File) {
			for _, m := range registered(f) {
				rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |\n", m.name, m.kind, m.help))
				name, _, _ := strings.Cut(m.name, "{")
				names = append(names, name)
			}
		})
	}
	if len(rows) < 20 {
		t.Errorf("%d metrics", len(rows))
	}
	slices.Sort(rows)
	path := filepath.Join(root, metricsPage)
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, begun := strings.Cut(string(page), metricsBegin)
	_, after, ended := strings.Cut(rest, metricsEnd)
	if !begun || !ended {
		t.Fatalf("%s: want the lines %q and %q around what is generated", metricsPage, metricsBegin, metricsEnd)
	}
	want := before + metricsBegin + metricsHead + strings.Join(rows, "") + "\n" + metricsEnd + after
	switch {
	case *update:
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	case want != string(page):
		t.Errorf("%s is not what the programs register: run go test ./test/docs -run TestMetrics -update", metricsPage)
	}
	monitored(t, names)
}

// metricsPage has the metrics. Between two marks it is generated, and begins with metricsHead.
const (
	metricsPage  = "docs/reference/metrics.md"
	metricsBegin = "<!-- BEGIN GENERATED: metrics -->\n"
	metricsHead  = "\n| metric | type | what it is |\n| --- | --- | --- |\n"
	metricsEnd   = "<!-- END GENERATED: metrics -->\n"
)

// registration is a metric that a program makes: its name with its labels, as in diapause_x{a,b}, and what it is.
type registration struct {
	name, kind, help string
}

// registered returns the metrics that a file makes: a call has the options with name and help first, or these two, and
// then the labels.
func registered(f *ast.File) (all []registration) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		name := metric(call.Args[0])
		if name == "" {
			return true
		}
		m := registration{name: name, kind: "gauge", help: helpOf(call.Args)}
		if s, ok := call.Fun.(*ast.SelectorExpr); ok {
			m.kind = strings.ToLower(strings.TrimPrefix(metricKind.FindString(s.Sel.Name), "New"))
		}
		if len(call.Args) > 1 {
			if l, ok := call.Args[1].(*ast.CompositeLit); ok {
				m.name += "{" + strings.Join(texts(l), ",") + "}"
			}
		}
		all = append(all, m)
		return true
	})
	return all
}

// metricKind is how the function begins that makes a metric.
var metricKind = regexp.MustCompile(`^New(Counter|Gauge|Histogram)`)

// helpOf returns what the arguments of a call say of a metric.
func helpOf(args []ast.Expr) string {
	options, ok := args[0].(*ast.CompositeLit)
	if !ok {
		return strings.Join(texts(args[min(1, len(args)-1)]), "")
	}
	for _, e := range options.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok && fmt.Sprint(kv.Key) == "Help" {
			return strings.Join(texts(kv.Value), "")
		}
	}
	return ""
}

// metric returns the name of a metric in an argument.
func metric(x ast.Expr) string {
	for _, s := range texts(x) {
		if metricName.MatchString(s) {
			return s
		}
	}
	return ""
}

// texts returns the literals in an expression that is one, or a composite of them.
func texts(x ast.Expr) (all []string) {
	switch x := x.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(x.Value); err == nil {
			all = append(all, s)
		}
	case *ast.KeyValueExpr:
		return texts(x.Value)
	case *ast.BinaryExpr:
		return append(texts(x.X), texts(x.Y)...)
	case *ast.CompositeLit:
		for _, e := range x.Elts {
			all = append(all, texts(e)...)
		}
	}
	return all
}

// monitored checks which metrics the page on monitoring and the alerts name.
func monitored(t *testing.T, have []string) {
	t.Helper()
	page := readAll(t, alertsPage)
	for _, name := range have {
		if !regexp.MustCompile("(?m)^\\| `" + name + "\\b").Match(page) {
			t.Errorf("%s does not say what %s tells", alertsPage, name)
		}
	}
	for _, path := range []string{alertsPage, alertsFile} {
		for _, m := range regexp.MustCompile(`diapause_\w+`).FindAll(readAll(t, path), -1) {
			if name := strings.TrimSuffix(string(m), "_bucket"); !slices.Contains(have, name) {
				t.Errorf("%s has %s, which no program registers", path, m)
			}
		}
	}
}
