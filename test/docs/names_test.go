package docs

import (
	"go/ast"
	"go/token"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The pages that have the names of the API.
const (
	annotations = "docs/reference/annotations.md"
	eventsPage  = "docs/reference/events.md"
)

// TestNames: each annotation, label and finalizer of the API is in the first cell of a row of their page, and each
// condition and reason in a row of the page of events. These rows have no other names of ours.
func TestNames(t *testing.T) {
	keys, outcomes := apiNames(t)
	inKeys := coded(firstCells(tableRows(t, annotations, "key")))
	inEvents := coded(slices.Concat(tableRows(t, eventsPage, "object")...))
	for name, value := range keys {
		if !slices.Contains(inKeys, value) {
			t.Errorf("%s lacks %s: add a row of `%s` that says on what it is and what it means", annotations, name, value)
		}
	}
	for name, value := range outcomes {
		if !slices.Contains(inEvents, value) && !slices.Contains(coded(eventCells(t)), value) {
			t.Errorf("%s lacks %s: add `%s` to the tables", eventsPage, name, value)
		}
	}
	ours := regexp.MustCompile(`^(diapause\.dev|podsnapshot\.gke\.io)/`)
	for _, key := range inKeys {
		if ours.MatchString(key) && !contains(keys, key) {
			t.Errorf("%s has %s, which names.go does not: remove it", annotations, key)
		}
	}
	for _, row := range tableRows(t, eventsPage, "object") {
		for _, name := range coded([]string{row[1], row[3]}) {
			if !contains(outcomes, name) {
				t.Errorf("%s has the condition or reason %s, which names.go does not: remove it", eventsPage, name)
			}
		}
	}
}

// eventCells returns the cells of the table of events.
func eventCells(t *testing.T) []string { return slices.Concat(tableRows(t, eventsPage, "type")...) }

func firstCells(rows [][]string) (all []string) {
	for _, r := range rows {
		all = append(all, r[0])
	}
	return all
}

// coded returns what is in backticks.
func coded(cells []string) (all []string) {
	for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(strings.Join(cells, "\n"), -1) {
		all = append(all, m[1])
	}
	return all
}

func contains(names map[string]string, value string) bool {
	return slices.Contains(slices.Collect(maps.Values(names)), value)
}

// apiNames returns the constants of the API that users see: keys of annotations and labels with the finalizer, and
// conditions with reasons.
func apiNames(t *testing.T) (keys, outcomes map[string]string) {
	t.Helper()
	keys, outcomes = make(map[string]string), make(map[string]string)
	for _, dir := range []string{"api/podsnapshot/v1", "api/sleeppolicy/v1alpha1"} {
		eachFile(t, dir, func(f *ast.File) {
			for name, value := range constants(f) {
				switch {
				case regexp.MustCompile(`^(Annotation|Label|Finalizer)`).MatchString(name):
					keys[dir+"."+name] = value
				case regexp.MustCompile(`^(Condition|Reason|EventReason)`).MatchString(name):
					outcomes[dir+"."+name] = value
				}
			}
		})
	}
	keys["manifests/users.yaml"] = // the one name that only admission reads
		"diapause.dev/restore-requires-permission"
	if len(keys) < 30 || len(outcomes) < 30 {
		t.Fatalf("%d keys, %d conditions and reasons", len(keys), len(outcomes))
	}
	return keys, outcomes
}

// TestEvents: the page of events has how each event begins, with its type, and no other.
func TestEvents(t *testing.T) {
	said := make(map[string]string) // the type of each
	for _, row := range tableRows(t, eventsPage, "type") {
		for _, text := range coded(row[2:3]) {
			said[text] = row[0]
		}
	}
	types := eventTypes(t)
	for begin, want := range types {
		text, ok := first(maps.Keys(said), func(s string) bool { return strings.HasPrefix(s, begin) })
		if !ok {
			t.Errorf("%s lacks the event or message `%s…`: add a row with its type", eventsPage, begin)
		} else if !strings.EqualFold(said[text], want) {
			t.Errorf("%s: the type of `%s` is %s, and the page says %s", eventsPage, text, want, said[text])
		}
	}
	for s := range said {
		if _, ok := first(maps.Keys(types), func(begin string) bool { return strings.HasPrefix(s, begin) }); !ok {
			t.Errorf("%s has the event `%s`, which no agent makes: correct or remove it", eventsPage, s)
		}
	}
}

func first(all iter.Seq[string], is func(string) bool) (string, bool) {
	for s := range all {
		if is(s) {
			return s, true
		}
	}
	return "", false
}

// constants returns a file's constants that are texts, and what they say.
func constants(f *ast.File) map[string]string {
	all := make(map[string]string)
	ast.Inspect(f, func(n ast.Node) bool {
		s, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		for i, v := range s.Values {
			if b, ok := v.(*ast.BasicLit); ok && b.Kind == token.STRING {
				if value, err := strconv.Unquote(b.Value); err == nil {
					all[s.Names[i].Name] = value
				}
			}
		}
		return true
	})
	return all
}
