package main

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestResult(t *testing.T) {
	const pass = `{"Action":"run","Package":"p","Test":"A"}{"Action":"output","Package":"p","Test":"A","Output":"=== RUN A\n"}{"Action":"pass","Package":"p","Test":"A"}`
	for _, x := range []struct {
		name, in       string
		err            error
		passed, failed int
	}{
		{"nothing", "", nil, 0, 0},
		{"one", pass + `{"Action":"pass","Package":"p"}`, nil, 1, 0},
		{"subtests", `{"Action":"run","Package":"p","Test":"A"}{"Action":"run","Package":"p","Test":"A/b"}{"Action":"run","Package":"p","Test":"A/c"}` +
			`{"Action":"pass","Package":"p","Test":"A/b"}{"Action":"fail","Package":"p","Test":"A/c"}{"Action":"fail","Package":"p","Test":"A"}`, nil, 1, 1},
		{"parent", `{"Action":"run","Package":"p","Test":"A"}{"Action":"run","Package":"p","Test":"A/b"}{"Action":"pass","Package":"p","Test":"A/b"}{"Action":"fail","Package":"p","Test":"A"}`, nil, 1, 1},
		{"never ended", pass + `{"Action":"run","Package":"p","Test":"B"}{"Action":"fail","Package":"p"}`, nil, 1, 1},
		{"package", pass + `{"Action":"fail","Package":"p"}`, nil, 1, 1},
		{"error", pass, errors.New("no"), 1, 1},
		{"skipped", `{"Action":"run","Package":"p","Test":"A"}{"Action":"skip","Package":"p","Test":"A"}`, nil, 0, 0},
	} {
		y := newTally(io.Discard)
		if err := y.read(strings.NewReader(x.in)); err != nil {
			t.Error(err)
		}
		if passed, failed := y.result(x.err); passed != x.passed || failed != x.failed {
			t.Errorf("%s: %d passed, %d failed, want %d, %d", x.name, passed, failed, x.passed, x.failed)
		}
	}
}

func TestOutput(t *testing.T) {
	var b strings.Builder
	y := newTally(&b)
	if err := y.read(strings.NewReader(`{"Action":"output","Output":"=== RUN A\n"}{"Action":"output","Output":"said\n"}`)); err != nil || b.String() != "said\n" {
		t.Errorf("%q, %v", &b, err)
	}
	if err := y.read(strings.NewReader(`{"Action`)); err == nil {
		t.Error("what is no JSON was read")
	}
}
