package main

import (
	"bytes"
	"maps"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadProfile: a block counts once, however often it is named.
func TestReadProfile(t *testing.T) {
	const profile = `mode: atomic
diapause.dev/agent/a.go:1.2,3.4 5 0
diapause.dev/agent/a.go:1.2,3.4 5 7
diapause.dev/agent/kube/b.go:1.2,3.4 3 0
diapause.dev/cri/c.go:1.2,3.4 2 1
`
	got, err := readProfile(strings.NewReader(profile))
	if want := (map[string]statements{"agent": {8, 5}, "cri": {2, 2}}); err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if _, err := readProfile(strings.NewReader("no profile\n")); err == nil {
		t.Error("what is no profile is no error")
	}
}

// TestCover: what tests reach counts, and what a program reaches that a test builds and runs.
func TestCover(t *testing.T) {
	s, _ := fake(t)
	var err error
	if s.cover, err = newCoverage(filepath.Join(s.root, "cover")); err != nil {
		t.Fatal(err)
	}
	runs := part("runs", named("cri", "test/bed"))
	if r := s.once(t.Context(), [][]phase{{runs}}, alone); !r.ok() {
		t.Fatal(text(r))
	}
	var got bytes.Buffer
	if err := s.cover.print(t.Context(), &got); err != nil {
		t.Fatal(err)
	}
	words := strings.Join(strings.Fields(got.String()), " ")
	const want = " 1 1 100.0 agent 2 2 100.0 cmd 3 2 66.7 cri 6 5 83.3 all"
	if !strings.HasSuffix(words, want) {
		t.Errorf("%q is missing in\n%s", want, &got)
	}
}
