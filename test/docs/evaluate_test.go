package docs

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// limits is the page of the times that an operator meets.
const limits = "docs/reference/timeouts.md"

// units are the constants of package time.
var units = map[string]time.Duration{
	"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour,
}

// TestTimeouts: each time on the page is that of the constant in its row, as in `directory/of/package.constant`.
func TestTimeouts(t *testing.T) {
	n := 0
	for _, row := range tableRows(t, limits, "limit") {
		n++
		want, err := evaluate(row[1])
		if err != nil {
			t.Errorf("%s: %q: %v", limits, row[0], err)
			continue
		}
		if have, err := duration(row[0]); err != nil || have != want {
			t.Errorf("%s: the row of %s says %s, and the constant is %v: correct the page", limits, row[1], row[0], want)
		}
	}
	if n < 20 {
		t.Errorf("%s has %d limits", limits, n)
	}
}

// duration reads a time as pages have it: a whole number and a unit.
func duration(s string) (time.Duration, error) {
	var n int64
	var unit string
	if _, err := fmt.Sscanf(s, "%d %s", &n, &unit); err != nil {
		return 0, err
	}
	of := map[string]time.Duration{
		"ms": time.Millisecond, "s": time.Second, "min": time.Minute, "h": time.Hour, "days": 24 * time.Hour,
	}[unit]
	if of == 0 {
		return 0, fmt.Errorf("%q is none of the units ms, s, min, h and days", unit)
	}
	return time.Duration(n) * of, nil
}

// evaluate returns the value of a constant that is a time: `directory.name`.
func evaluate(name string) (time.Duration, error) {
	name = strings.Trim(name, "`")
	dir, name, ok := cutLast(name, ".")
	if !ok {
		return 0, fmt.Errorf("want package.Constant")
	}
	consts, err := constantsOf(dir)
	if err != nil {
		return 0, err
	}
	x, ok := consts[name]
	if !ok {
		return 0, fmt.Errorf("package %s has no such constant any longer: name the one that it is now", dir)
	}
	v, err := value(x, consts)
	if err != nil {
		return 0, err
	}
	n, exact := constant.Int64Val(constant.ToInt(v))
	if !exact {
		return 0, fmt.Errorf("%v is no time", v)
	}
	return time.Duration(n), nil
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// constantsOf returns the constants of a directory's package, by their names.
func constantsOf(dir string) (map[string]ast.Expr, error) {
	files, err := filepath.Glob(filepath.Join(root, dir, "*.go"))
	if err != nil {
		return nil, err
	}
	all := make(map[string]ast.Expr)
	for _, path := range files {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return nil, err
		}
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.CONST {
				note(g, all)
			}
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: no constants: %w", dir, os.ErrNotExist)
	}
	return all, nil
}

func note(g *ast.GenDecl, all map[string]ast.Expr) {
	for _, s := range g.Specs {
		v := s.(*ast.ValueSpec)
		for i, x := range v.Values {
			all[v.Names[i].Name] = x
		}
	}
}

// value returns that of a constant expression of numbers, units of time and other constants of its package.
func value(x ast.Expr, consts map[string]ast.Expr) (constant.Value, error) {
	switch x := x.(type) {
	case *ast.BasicLit:
		return constant.MakeFromLiteral(x.Value, x.Kind, 0), nil
	case *ast.ParenExpr:
		return value(x.X, consts)
	case *ast.SelectorExpr:
		if unit, ok := units[x.Sel.Name]; ok {
			return constant.MakeInt64(int64(unit)), nil
		}
	case *ast.Ident:
		if y, ok := consts[x.Name]; ok {
			return value(y, consts)
		}
	case *ast.BinaryExpr:
		a, err := value(x.X, consts)
		if err != nil {
			return nil, err
		}
		b, err := value(x.Y, consts)
		if err != nil {
			return nil, err
		}
		return constant.BinaryOp(a, x.Op, b), nil
	}
	return nil, fmt.Errorf("%T cannot be evaluated", x)
}
