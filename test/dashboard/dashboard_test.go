package dashboard

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
)

const (
	rendered = "../../manifests/components/dashboard/dashboard.json"
	// page lists the metrics that the programs register: TestMetrics of test/docs compares them.
	page = "../../docs/reference/metrics.md"
)

var update = flag.Bool("update", false, "write "+rendered)

// TestRendered: the file is what the code renders.
func TestRendered(t *testing.T) {
	want, err := Render()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(rendered, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if have, err := os.ReadFile(rendered); err != nil || !bytes.Equal(have, want) {
		t.Errorf("%s is not what the code renders, %v: run make generate", rendered, err)
	}
}

// shown is what the tests read of a panel of the rendered file.
type shown struct {
	ID                       int
	Title, Description, Type string
	GridPos                  struct{ X, Y, W, H int }
	Targets                  []struct{ Expr, LegendFormat, RefID string }
	Datasource               struct{ UID string }
}

func panels(t *testing.T) (all []shown) {
	t.Helper()
	text, err := os.ReadFile(rendered)
	var file struct{ Panels []shown }
	if err == nil {
		err = json.Unmarshal(text, &file)
	}
	if err != nil || len(file.Panels) < 20 {
		t.Fatalf("%d panels, %v", len(file.Panels), err)
	}
	return file.Panels
}

// metric is what the page says of one.
type metric struct {
	kind   string
	labels []string
}

// metrics returns those of the page, and the two of each Go program that the dashboard shows.
func metrics(t *testing.T) map[string]metric {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]metric{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(diapause_\\w+)(?:{([\\w,]+)})?` \\| (\\w+) \\|").
		FindAllStringSubmatch(string(text), -1) {
		all[m[1]] = metric{kind: m[3], labels: strings.FieldsFunc(m[2], func(r rune) bool { return r == ',' })}
	}
	if len(all) < 20 {
		t.Fatalf("%s has %d metrics", page, len(all))
	}
	all["process_cpu_seconds_total"] = metric{kind: "counter"}
	all["process_resident_memory_bytes"] = metric{kind: "gauge"}
	return all
}

// TestExpressions: Prometheus can parse each expression. It names metrics and labels that a program registers, and asks
// of counters alone how they grow. A legend names labels that the series have. Each metric is on a panel.
func TestExpressions(t *testing.T) {
	have := metrics(t)
	missing := metrics(t)
	for _, p := range panels(t) {
		for _, q := range p.Targets {
			for _, problem := range check(q.Expr, q.LegendFormat, have, missing) {
				t.Errorf("%s: %s: %s", p.Title, q.Expr, problem)
			}
		}
	}
	for name := range missing {
		t.Errorf("%s is on no panel", name)
	}
}

// variables are Grafana's, with values that they may have.
var variables = strings.NewReplacer("$__rate_interval", "5m", "$__range", "6h", "$pod", "diapause-agent-x")

// check returns what is wrong with an expression and its legend. It removes the metrics that it finds from missing.
func check(expr, legend string, have, missing map[string]metric) (problems []string) {
	tree, err := parser.NewParser(parser.Options{}).ParseExpr(variables.Replace(expr))
	if err != nil {
		return []string{err.Error()}
	}
	// A series has the labels of its metric and pod, which Prometheus adds with job and instance.
	known := []string{"pod", "job", "instance", "le"}
	selectors := 0
	parser.Inspect(tree, func(node parser.Node, path []parser.Node) error {
		s, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		selectors++
		name := regexp.MustCompile("_(bucket|count|sum)$").ReplaceAllString(s.Name, "")
		m, ok := have[name]
		if !ok || (name != s.Name) != (m.kind == "histogram") {
			problems = append(problems, s.Name+" is registered by no program")
		}
		delete(missing, name)
		known = append(known, m.labels...)
		for _, l := range s.LabelMatchers {
			if l.Name != "__name__" && l.Name != "pod" && !slices.Contains(m.labels, l.Name) {
				problems = append(problems, name+" has no label "+l.Name)
			}
		}
		if grows := m.kind != "gauge"; grows != inside(path, "rate", "increase") {
			problems = append(problems, fmt.Sprintf("%s is a %s", name, m.kind))
		}
		return nil
	})
	if selectors == 0 {
		problems = append(problems, "no metric")
	}
	return append(problems, checkLabels(tree, legend, known)...)
}

// checkLabels returns the labels of aggregations and of the legend that no series has.
func checkLabels(tree parser.Expr, legend string, known []string) (problems []string) {
	var by []string
	parser.Inspect(tree, func(node parser.Node, _ []parser.Node) error {
		if a, ok := node.(*parser.AggregateExpr); ok {
			by = append(by, a.Grouping...)
		}
		return nil
	})
	for _, label := range by {
		if !slices.Contains(known, label) {
			problems = append(problems, "no series has the label "+label)
		}
	}
	for _, m := range regexp.MustCompile(`{{(.*?)}}`).FindAllStringSubmatch(legend, -1) {
		if !slices.Contains(by, m[1]) {
			problems = append(problems, "the legend names "+m[1])
		}
	}
	for _, label := range by {
		if label != "le" && !strings.Contains(legend, "{{"+label+"}}") {
			problems = append(problems, "the legend does not name "+label)
		}
	}
	return problems
}

// inside reports whether a node is within a call of one of the functions.
func inside(path []parser.Node, functions ...string) bool {
	return slices.ContainsFunc(path, func(n parser.Node) bool {
		call, ok := n.(*parser.Call)
		return ok && slices.Contains(functions, call.Func.Name)
	})
}

// TestCheck: the check sees each kind of mistake.
func TestCheck(t *testing.T) {
	for expr, legend := range map[string]string{
		"sum(":                       "",
		"1":                          "",
		"diapause_podsasleep":        "",
		"diapause_pods_asleep_count": "",
		"rate(diapause_pods_asleep[$__rate_interval])":                       "",
		"diapause_failed_wakes_total":                                        "",
		`increase(diapause_failed_wakes_total{result="ok"}[$__range])`:       "",
		"sum by (reason) (diapause_pods_asleep)":                             "{{reason}}",
		"sum by (pod) (diapause_pods_asleep)":                                "{{node}} {{pod}}",
		"sum by (pod, version) (diapause_build_info)":                        "{{pod}}",
		"histogram_quantile(1, sum by (le) (diapause_wake_seconds_bucket))":  "",
		"sum(rate(diapause_wake_seconds[$__range]))":                         "",
		"sum by (pod) (rate(diapause_wake_seconds_bucket[$__interval_sec]))": "{{pod}}",
	} {
		if problems := check(expr, legend, metrics(t), metrics(t)); len(problems) == 0 {
			t.Errorf("%s, %q is accepted", expr, legend)
		}
	}
	if problems := check("sum by (pod) (diapause_pods_asleep)", "{{pod}}", metrics(t), metrics(t)); problems != nil {
		t.Error(problems)
	}
}

// TestLayout: each line of panels fills the width, under a row of its own. Panels have titles, numbers and the data
// source that the user chooses.
func TestLayout(t *testing.T) {
	x, y, below, rows := 24, 0, 0, 0
	ids := map[int]bool{}
	for _, p := range panels(t) {
		if p.Title == "" || ids[p.ID] || p.Type != "row" && (len(p.Targets) == 0 || p.Datasource.UID != "${datasource}") {
			t.Errorf("panel %d, %q: %d queries, data source %q", p.ID, p.Title, len(p.Targets), p.Datasource.UID)
		}
		ids[p.ID] = true
		if x == 24 {
			x, y = 0, below
		}
		if p.Type == "row" {
			rows++
		}
		if g := p.GridPos; g.X != x || g.Y != y || g.Y+g.H < below {
			t.Errorf("%q is at %+v, want %d, %d", p.Title, g, x, y)
		}
		x, below = x+p.GridPos.W, p.GridPos.Y+p.GridPos.H
	}
	if x != 24 || rows != 7 {
		t.Errorf("the last line ends at %d; %d rows", x, rows)
	}
}
