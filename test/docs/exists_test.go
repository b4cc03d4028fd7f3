package docs

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/yuin/goldmark/ast"
)

// TestExists: what a page names in code exists: files and directories of the repository, tests, flags, metrics, and
// names of our API.
func TestExists(t *testing.T) {
	n := namesOf(t)
	for path := range pages(t) {
		if unruled(path) {
			continue
		}
		d := read(t, path)
		walk(d.tree, func(node ast.Node) {
			if node.Kind() != ast.KindCodeSpan {
				return
			}
			code := d.visible(node, "")
			for _, why := range n.wrong(code) {
				t.Errorf("%s: `%s`: %s", path, code, why)
			}
		})
	}
}

// names are those that exist.
type names struct {
	tests   map[string]bool
	flags   map[string]bool
	keys    map[string]bool
	metrics map[string]bool
	rooms   map[string]bool // the directories at the top of the repository
	gvisor  string          // the directory of gVisor
}

var (
	testName   = regexp.MustCompile(`^(?:[a-z]+\.)?((?:Test|Fuzz|Benchmark)[A-Z]\w*)(\.\.\.|…|\*)?$`)
	flagName   = regexp.MustCompile(`(?:^|[ \[])--([a-z][a-z0-9-]+)`)
	keyName    = regexp.MustCompile(`^(?:diapause\.dev|podsnapshot\.gke\.io)/[a-zA-Z-]+`)
	metricName = regexp.MustCompile(`^diapause_[a-z_]+$`)
	filePath   = regexp.MustCompile(`^[a-z.][\w./-]*/[\w./-]+$`)
)

// foreign are flags of programs that are not ours and that pages name alone.
var foreign = regexp.MustCompile(`^(kubectl|go|runsc|git|docker|gcloud|aws|make|kubelet|containerd|mount|ctr|crictl|` +
	`openssl|cosign|systemctl|nsenter|strace|helm)\b`)

// wrong returns what a text in code names that does not exist.
func (n *names) wrong(code string) (why []string) {
	if m := testName.FindStringSubmatch(code); m != nil && m[2] == "" && !n.tests[m[1]] {
		why = append(why, "no test has this name: name the one that shows it now")
	}
	if !foreign.MatchString(code) || strings.HasPrefix(code, "kubectl diapause") {
		for _, m := range flagName.FindAllStringSubmatch(code, -1) {
			if !n.flags[m[1]] {
				why = append(why, "no command of ours has the flag --"+m[1])
			}
		}
	}
	if m := keyName.FindString(code); m != "" && !n.keys[m] {
		why = append(why, "names.go of the API has no such name")
	}
	if metricName.MatchString(code) && !n.metrics[strings.TrimSuffix(code, "_bucket")] {
		why = append(why, "no program registers this metric")
	}
	if !n.exists(code) {
		why = append(why, "no such file or directory in the repository, or in gVisor")
	}
	return why
}

// exists reports whether a text is no path that begins with one of our rooms, or what it leads to is there: in the
// repository or in gVisor, which has rooms of the same names. A constant of a package stands behind a dot.
func (n *names) exists(code string) bool {
	room, _, _ := strings.Cut(code, "/")
	if !filePath.MatchString(code) || !n.rooms[room] || strings.HasPrefix(code, "bench/out") {
		return true
	}
	code = strings.TrimSuffix(code, "/...")
	for _, above := range []string{root, n.gvisor} {
		for _, path := range []string{code, constantName.ReplaceAllString(code, "")} {
			if _, err := os.Stat(filepath.Join(above, path)); err == nil {
				return true
			}
		}
	}
	return false
}

// constantName is a constant behind the path of its package.
var constantName = regexp.MustCompile(`\.[A-Za-z]{3,}$`)

func namesOf(t *testing.T) *names {
	t.Helper()
	n := &names{
		tests: make(map[string]bool), flags: map[string]bool{"help": true, "version": true},
		keys:    map[string]bool{"diapause.dev/v1alpha1": true, "podsnapshot.gke.io/v1": true},
		metrics: make(map[string]bool), rooms: make(map[string]bool),
	}
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "gvisor.dev/gvisor").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	n.gvisor = strings.TrimSpace(string(out))
	top, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range top {
		if d.IsDir() && !strings.HasPrefix(d.Name(), ".") {
			n.rooms[d.Name()] = true
		}
	}
	const flag = `\.(?:\w*Var|String|Int|Int64|Bool|Duration|Float64|Uint|StringSlice)P?\([^"\n]*"([a-z][a-z0-9-]+)"`
	find(t, root, "_test.go", `(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`, n.tests)
	find(t, root, ".go", flag, n.flags)
	find(t, filepath.Join(n.gvisor, "runsc"), ".go", flag, n.flags)
	find(t, filepath.Join(n.gvisor, "runsc/config"), "config.go", "`flag:\"([a-z0-9-]+)\"", n.flags)
	find(t, root, ".go", `"((?:diapause\.dev|podsnapshot\.gke\.io)/[a-zA-Z-]+)`, n.keys)
	find(t, root, ".go", `"(diapause_[a-z_]+)"`, n.metrics)
	return n
}

// find adds what an expression's group matches in the files below a directory whose names end so.
func find(t *testing.T, dir, suffix, expression string, to map[string]bool) {
	t.Helper()
	x := regexp.MustCompile(expression)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != dir {
			return filepath.SkipDir
		}
		if err != nil || d.IsDir() || !strings.HasSuffix(path, suffix) {
			return err
		}
		b, err := os.ReadFile(path)
		for _, m := range x.FindAllSubmatch(b, -1) {
			to[string(m[len(m)-1])] = true
		}
		return err
	})
	if err != nil || len(to) == 0 {
		t.Fatalf("%s: %d names, %v", expression, len(to), err)
	}
}
