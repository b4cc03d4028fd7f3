package podspec

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
)

// maxDifferences bounds how many differences are listed.
const maxDifferences = 8

// Differences lists in words where a pod's spec differs from a snapshot's, for example "container app: image
// differs". Equal specs have no differences. If there are very many, it lists the first ones and counts the rest.
func Differences(snapshot, pod *Spec) []string {
	var d differences
	d.fields("", reflect.ValueOf(snapshot).Elem(), reflect.ValueOf(pod).Elem())
	if more := len(d) - maxDifferences; more > 0 {
		d = append(d[:maxDifferences], fmt.Sprintf("%d more differences", more))
	}
	return d
}

// differences collects sentences.
type differences []string

func (d *differences) add(format string, args ...any) { *d = append(*d, fmt.Sprintf(format, args...)) }

// fields compares structs of the same type, field by field. Lists of named things are compared thing by thing. For
// short values, the sentence contains both.
func (d *differences) fields(of string, snapshot, pod reflect.Value) {
	for i := range snapshot.NumField() {
		s, p := snapshot.Field(i), pod.Field(i)
		if equality.Semantic.DeepEqual(s.Interface(), p.Interface()) {
			continue
		}
		what, _, _ := strings.Cut(snapshot.Type().Field(i).Tag.Get("json"), ",")
		switch {
		case what == "annotations":
			d.annotations(s.Interface().(map[string]string), p.Interface().(map[string]string))
		case s.Kind() == reflect.Slice && s.Type().Elem().Kind() == reflect.Struct:
			d.list(of, what, s, p)
		case s.Kind() == reflect.String:
			d.add("%s%s differs (%.80q in the snapshot, %.80q in the pod)", of, what, s.String(), p.String())
		default:
			d.add("%s%s differs", of, what)
		}
	}
}

func (d *differences) annotations(snapshot, pod map[string]string) {
	keys := maps.Clone(snapshot)
	if keys == nil {
		keys = make(map[string]string)
	}
	maps.Copy(keys, pod)
	for _, k := range slices.Sorted(maps.Keys(keys)) {
		s, inSnapshot := snapshot[k]
		if p, inPod := pod[k]; s != p || inSnapshot != inPod {
			d.add("annotation %.120s differs", k)
		}
	}
}

// singular maps the name of a list to the name of one element.
var singular = map[string]string{
	"volumes": "volume", "initContainers": "init container", "containers": "container", "ports": "port", "mounts": "mount",
}

// list compares lists of named things. Things that are in both lists by the same name are compared by their fields.
func (d *differences) list(of, what string, snapshot, pod reflect.Value) {
	before := len(*d)
	kind := singular[what]
	s, p := byName(snapshot), byName(pod)
	for _, n := range names(snapshot, pod) {
		switch in, at := s[n]; {
		case !at:
			d.add("%s%s %.80s is not in the snapshot", of, kind, n)
		case !p[n].IsValid():
			d.add("%s%s %.80s is not in the pod", of, kind, n)
		default:
			d.fields(fmt.Sprintf("%s%s %.80s: ", of, kind, n), in, p[n])
		}
	}
	if len(*d) == before {
		d.add("%sthe order of %s differs", of, what)
	}
}

// names returns the names of the elements of all lists, without duplicates, in the order of the lists.
func names(lists ...reflect.Value) (out []string) {
	for _, l := range lists {
		for i := range l.Len() {
			if n := nameOf(l.Index(i)); !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
	}
	return out
}

func byName(list reflect.Value) map[string]reflect.Value {
	out := make(map[string]reflect.Value)
	for i := range list.Len() {
		out[nameOf(list.Index(i))] = list.Index(i)
	}
	return out
}

// nameOf returns what identifies an element in its list.
func nameOf(e reflect.Value) string {
	switch e := e.Interface().(type) {
	case Volume:
		return e.Name
	case Container:
		return e.Name
	case Mount:
		return e.Path
	case Port:
		return fmt.Sprintf("%d/%s", e.Number, e.Protocol)
	}
	return ""
}
