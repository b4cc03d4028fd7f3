package main

import (
	"slices"
	"testing"
	"testing/fstest"
)

func TestTargets(t *testing.T) {
	module := fstest.MapFS{
		"a/x_test.go": {Data: []byte("package a\n\nfunc FuzzOne(f *testing.F) {}\n\nfunc TestTwo(t *testing.T) " +
			"{}\n\nfunc FuzzThree(f *testing.F) {}\n")},
		"a/b/y_test.go":      {Data: []byte("func FuzzFour(f *testing.F) {}\n\n// func FuzzFive(\n")},
		"a/z.go":             {Data: []byte("func FuzzSix(f *testing.F) {}\n")},
		".cache/c/w_test.go": {Data: []byte("func FuzzSeven(f *testing.F) {}\n")},
	}
	got, err := targets(module)
	if want := []target{{"a/b", "FuzzFour"}, {"a", "FuzzOne"}, {"a", "FuzzThree"}}; err != nil ||
		!slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	if _, err := targets(fstest.MapFS{}); err == nil {
		t.Error("nothing to do is no error")
	}
}

func TestOnlyLate(t *testing.T) {
	const begin = "fuzz: elapsed: 1m0s, execs: 890391 (0/sec), new interesting: 261 (total: 263)\n--- FAIL: FuzzPlan " +
		"(60.05s)\n"
	for out, want := range map[string]bool{
		begin + "    context deadline exceeded\nFAIL\nexit status 1\nFAIL\tdiapause.dev/cri\t60.066s\n": true,
		begin + "    --- FAIL: FuzzPlan (0.00s)\n        plan_test.go:110: log directory \"\"\n\n    Failing input " +
			"written to testdata/fuzz/FuzzPlan/1\nFAIL\n": false,
		begin + "    context deadline exceeded\n    Failing input written to testdata/fuzz/FuzzPlan/1\nFAIL\n": false,
		begin + "    fuzzing process hung or terminated unexpectedly: exit status 2\nFAIL\n":                   false,
		"--- FAIL: FuzzPlanned (60.05s)\n    context deadline exceeded\nFAIL\n":                                false,
		"panic: context deadline exceeded\nFAIL\n":                                                             false,
		"": false,
	} {
		if got := onlyLate(out, "FuzzPlan"); got != want {
			t.Errorf("%v, want %v, of\n%s", got, want, out)
		}
	}
}
