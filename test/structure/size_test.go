package structure

import (
	"go/ast"
	"maps"
	"slices"
	"testing"
)

// A package is one subject of at most maxLines lines of Go, without tests and what is generated. A type has at most
// maxMethods methods, a function at most maxFunction lines. Larger is only what is listed, and it must not grow.
const (
	maxLines    = 2500
	maxMethods  = 25
	maxFunction = 60
)

// largePackages are packages that are larger, and how large they may be.
var largePackages = map[string]int{
	"agent/snapshots": 3050,
	"runsc/shim":      8000,
	"storage":         6700, // one protocol: who writes, reads, sweeps and repairs must agree
}

// TestPackageSizes: no package becomes larger than it may be.
func TestPackageSizes(t *testing.T) {
	limits := maps.Clone(largePackages)
	for _, s := range sources(t, "api", "storage", "runsc", "cri", "agent", "cmd") {
		checkSize(t, "package "+s.dir+" (lines)", s.lines, maxLines, limits, s.dir)
	}
	checkUsed(t, limits)
}

// largeTypes are types that have more methods, and how many they may have.
var largeTypes = map[string]int{}

// longFunctions are functions that are longer, and how long they may be.
var longFunctions = map[string]int{}

// TestMethods: no type gets more methods than it may have. Those of embedded types do not count.
func TestMethods(t *testing.T) {
	limits := maps.Clone(largeTypes)
	for _, s := range sources(t, "api", "storage", "runsc", "cri", "agent", "cmd") {
		for name, n := range s.methods() {
			checkSize(t, "type "+s.dir+"."+name+" (methods)", n, maxMethods, limits, s.dir+"."+name)
		}
	}
	checkUsed(t, limits)
}

// TestFunctions: no function becomes longer than it may be.
func TestFunctions(t *testing.T) {
	limits := maps.Clone(longFunctions)
	for _, s := range sources(t, "api", "storage", "runsc", "cri", "agent", "cmd") {
		for name, n := range s.functions() {
			checkSize(t, "function "+s.dir+"."+name+" (lines)", n, maxFunction, limits, s.dir+"."+name)
		}
	}
	checkUsed(t, limits)
}

// functions returns how many lines each function of a package has.
func (s *source) functions() map[string]int {
	n := make(map[string]int)
	for _, f := range s.files {
		if ast.IsGenerated(f) {
			continue
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok {
				name := fn.Name.Name
				if fn.Recv != nil {
					name = receiver(fn.Recv.List[0].Type) + "." + name
				}
				n[name] = max(n[name], s.at.Position(fn.End()).Line-s.at.Position(fn.Pos()).Line+1)
			}
		}
	}
	return n
}

// checkSize fails if size is above the limit of key, which is usual if limits has none, or if it need not be in
// limits. It removes key from limits.
func checkSize(t *testing.T, what string, size, usual int, limits map[string]int, key string) {
	t.Helper()
	limit, listed := limits[key]
	delete(limits, key)
	switch {
	case listed && size <= usual:
		t.Errorf("%s: %d is within the usual %d: take it from the list", what, size, usual)
	case listed && size > limit:
		t.Errorf("%s: %d, and it is to become smaller, not larger than %d", what, size, limit)
	case !listed && size > usual:
		t.Errorf("%s: %d, more than %d: split it by subject", what, size, usual)
	}
}

// checkUsed fails for what is listed and was not found.
func checkUsed[V any](t *testing.T, limits map[string]V) {
	t.Helper()
	for _, key := range slices.Sorted(maps.Keys(limits)) {
		t.Errorf("%s was not found: take it from the list", key)
	}
}

// methods returns how many methods each type of a package has.
func (s *source) methods() map[string]int {
	n := make(map[string]int)
	for _, f := range s.files {
		if ast.IsGenerated(f) {
			continue
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv != nil {
				n[receiver(fn.Recv.List[0].Type)]++
			}
		}
	}
	return n
}

// receiver returns the name of a method's type.
func receiver(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.StarExpr:
		return receiver(x.X)
	case *ast.IndexExpr:
		return receiver(x.X)
	case *ast.IndexListExpr:
		return receiver(x.X)
	case *ast.Ident:
		return x.Name
	}
	return ""
}
