package docs

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// objects is the page that has a table of the fields of each object.
const objects = "docs/reference/api.md"

// fieldsHead begins such a table.
const fieldsHead = "| field | type | default | allowed | meaning |\n| --- | --- | --- | --- | --- |\n"

// definition is what we read of a custom resource definition.
type definition struct {
	Spec struct {
		Names    struct{ Kind string }
		Versions []struct {
			Schema struct {
				OpenAPIV3Schema *field `json:"openAPIV3Schema"`
			}
		}
	}
}

// field is one of an object, as its schema has it.
type field struct {
	Type        string
	Description string
	Default     json.RawMessage
	Enum        []string
	Minimum     *int64
	Maximum     *int64
	MinLength   *int64
	MaxLength   *int64
	MaxItems    *int64
	Required    []string
	Properties  map[string]*field
	Items       *field
	MapType     string `json:"x-kubernetes-map-type"`
	Validations []struct {
		Message string
	} `json:"x-kubernetes-validations"`
}

// definitions returns those of our objects, by their kinds.
func definitions(t *testing.T) map[string]*field {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "manifests/crds/*.yaml"))
	if err != nil || len(files) < 5 {
		t.Fatalf("%d definitions, %v", len(files), err)
	}
	all := make(map[string]*field)
	for _, path := range files {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var d definition
		if err := yaml.Unmarshal(b, &d); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		all[d.Spec.Names.Kind] = d.Spec.Versions[0].Schema.OpenAPIV3Schema
	}
	return all
}

// leaf reports whether Kubernetes defines what is in a field: a label selector, or conditions.
func (f *field) leaf() bool {
	return f.MapType == "atomic" || f.Items == nil && len(f.Properties) == 0 ||
		f.Items != nil && f.Items.Properties["lastTransitionTime"] != nil
}

// eachField calls do with the object's own fields, those of spec and of status, by their paths.
func eachField(object *field, do func(path string, f *field)) {
	for _, half := range []string{"spec", "status"} {
		if f := object.Properties[half]; f != nil {
			f.each(half, do)
		}
	}
}

func (f *field) each(path string, do func(path string, f *field)) {
	do(path, f)
	if f.leaf() {
		return
	}
	below := f.Properties
	if f.Items != nil {
		below = f.Items.Properties
		path += "[]"
	}
	for _, name := range slices.Sorted(maps.Keys(below)) {
		below[name].each(path+"."+name, do)
	}
}

// row returns the cells of a field but its meaning, as the page must have them.
func (f *field) row(path string, required bool) string {
	kind := f.Type
	switch {
	case f.MapType == "atomic":
		kind = "label selector"
	case f.Items != nil && f.leaf() && f.Items.Type == "object":
		kind = "list of conditions"
	case f.Items != nil:
		kind = "list of " + f.Items.Type
	}
	if required {
		kind += ", required"
	}
	var value string
	if f.Default != nil {
		value = "`" + strings.Trim(string(f.Default), `"`) + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |", path, kind, value, f.allowed())
}

// allowed says which values the API server takes.
func (f *field) allowed() string {
	var all []string
	if len(f.Enum) > 0 {
		all = append(all, "`"+strings.Join(f.Enum, "`, `")+"`")
	}
	all = append(all, between(f.Minimum, f.Maximum, ""), between(f.MinLength, f.MaxLength, " characters"),
		between(nil, f.MaxItems, " entries"))
	for _, v := range f.Validations {
		all = append(all, strings.ReplaceAll(v.Message, "|", `\|`))
	}
	all = slices.DeleteFunc(all, func(s string) bool { return s == "" })
	return strings.Join(all, "; ")
}

func between(least, most *int64, unit string) string {
	switch {
	case least != nil && most != nil:
		return fmt.Sprintf("%d to %d%s", *least, *most, unit)
	case least != nil:
		return fmt.Sprintf("at least %d%s", *least, unit)
	case most != nil:
		return fmt.Sprintf("at most %d%s", *most, unit)
	}
	return ""
}

// rows returns the rows of an object's table, without meanings.
func rows(object *field) (all []string) {
	required := make(map[string]bool)
	note := func(path string, f *field) {
		if f.Items != nil {
			path, f = path+"[]", f.Items
		}
		for _, name := range f.Required {
			required[path+"."+name] = true
		}
	}
	eachField(object, func(path string, f *field) {
		note(path, f)
		if path != "spec" && path != "status" {
			all = append(all, f.row(path, required[path]))
		}
	})
	return all
}

// fieldRow is a row of a table of fields: all cells but the last one, and the last one.
var fieldRow = regexp.MustCompile("(?m)^(\\| `(?:spec|status)\\..* \\|) (.*) \\|$")

// TestFields: the page of the objects has each field of each object in its table, with its type, default and bounds as
// the API server has them, and no other field. The meaning of each is written by hand: -update keeps it.
func TestFields(t *testing.T) {
	b, err := os.ReadFile(filepath.Join(root, objects))
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	for kind, object := range definitions(t) {
		begin := strings.Index(page, "\n## "+kind+"\n")
		if begin < 0 {
			t.Errorf("%s has no heading %s", objects, kind)
			continue
		}
		end := len(page)
		if next := strings.Index(page[begin+1:], "\n## "); next >= 0 {
			end = begin + 1 + next
		}
		section := page[begin:end]
		if *update {
			page = page[:begin] + withRows(section, object) + page[end:]
			continue
		}
		compareRows(t, kind, section, rows(object))
	}
	if *update {
		if err := os.WriteFile(filepath.Join(root, objects), []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func compareRows(t *testing.T, kind, section string, want []string) {
	t.Helper()
	var have []string
	for _, m := range fieldRow.FindAllStringSubmatch(section, -1) {
		if have = append(have, m[1]); strings.TrimSpace(m[2]) == "" {
			t.Errorf("%s, %s: say what it means: %s", objects, kind, m[1])
		}
	}
	for _, row := range want {
		if !slices.Contains(have, row) {
			t.Errorf("%s, %s: lacks the row, or it is another in manifests/crds; with -update this test writes it: %s",
				objects, kind, row)
		}
	}
	for _, row := range have {
		if !slices.Contains(want, row) {
			t.Errorf("%s, %s: remove or change the row, which manifests/crds does not have: %s", objects, kind, row)
		}
	}
}

// withRows returns a section with the table of an object's fields in place of the one that it has, or at its end. It
// keeps the meanings of fields.
func withRows(section string, object *field) string {
	meanings := make(map[string]string)
	for _, m := range fieldRow.FindAllStringSubmatch(section, -1) {
		meanings[fieldPath(m[1])] = m[2]
	}
	eachField(object, func(path string, f *field) {
		if meanings[path] == "" {
			meanings[path] = strings.Join(strings.Fields(f.Description), " ")
		}
	})
	table := fieldsHead
	for _, row := range rows(object) {
		table += row + " " + meanings[fieldPath(row)] + " |\n"
	}
	if old := regexp.MustCompile(`(?m)^\| field \|.*\n(\|.*\n)*`).FindStringIndex(section); old != nil {
		return section[:old[0]] + table + section[old[1]:]
	}
	return strings.TrimRight(section, "\n") + "\n\n" + table
}

// fieldPath returns the first cell of a row.
func fieldPath(row string) string {
	_, path, _ := strings.Cut(row, "`")
	path, _, _ = strings.Cut(path, "`")
	return path
}
