package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Bounds of what is printed of a failure: continuous integration shows the end of a log alone.
const (
	reasonLines  = 24
	samePlace    = 2 // of errors that one line of a test has reported, again and again
	restLines    = 6 // of an error of several lines, after its first
	packageLines = 20
	lineHead     = 300
	lineTail     = 500 // the cause of an error stands at its end
)

// failure is a test, a package or a phase that failed, and why.
type failure struct {
	phase, name string
	lines       []string
}

// failures returns what failed in a phase: each test, except those that failed only by a subtest, and each package that
// failed without a test that did, or in which tests did not end.
func (s *suite) failures(p *phaseTests) (out []failure) {
	failed := map[string]bool{} // tests and packages below which a failure is listed
	for _, t := range slices.Backward(p.tests) {
		switch {
		case t.name != "" && t.action == "":
			failed[t.pkg+" unended"] = true
		case t.name != "" && t.action == "fail":
			lines := s.reasons(t)
			if failed[t.id()] && len(lines) == 0 {
				continue
			}
			if len(lines) == 0 {
				lines = last(t.lines, reasonLines)
			}
			out = append(out, failure{t.phase, t.id(), lines})
			failed[t.pkg] = true
			for i := range t.name {
				if t.name[i] == '/' {
					failed[t.pkg+"."+t.name[:i]] = true
				}
			}
		}
	}
	slices.Reverse(out)
	for _, t := range p.tests {
		if t.name == "" && (t.action == "" || t.action == "fail" && (!failed[t.pkg] || failed[t.pkg+" unended"])) {
			out = append(out, p.wholePackage(t))
		}
	}
	return out
}

// wholePackage is the failure of a package.
func (p *phaseTests) wholePackage(t *test) failure {
	f := failure{phase: t.phase, name: t.pkg}
	for _, other := range p.tests {
		if other.pkg == t.pkg && other.name != "" && other.action == "" {
			f.lines = append(f.lines, other.name+" did not end")
		}
	}
	if len(f.lines) > packageLines {
		f.lines = append(f.lines[:packageLines], "...")
	}
	f.lines = append(f.lines, last(append(p.builds[t.failedBuild], t.lines...), packageLines)...)
	return f
}

var (
	// message is a line that a test has logged, or an error of it: go test tells these only by where they are from.
	message = regexp.MustCompile(`^ {4,}([\w.-]+\.go):(\d+): `)
	logged  = regexp.MustCompile(`\.(Log|Logf|Skip|Skipf)\([^)]`) // and not what a test shows of a daemon's Log()
)

// reasons returns a test's own errors: the first lines of each, and the first errors of each place.
func (s *suite) reasons(t *test) (out []string) {
	places := map[string]int{}
	rest := 0 // how many more lines the error may have that is being read
	for _, line := range t.lines {
		m := message.FindStringSubmatch(line)
		switch {
		case m == nil && rest > 0 && strings.HasPrefix(line, "        "):
			rest--
		case m == nil || logged.MatchString(s.source(t.pkg, m[1], m[2])):
			rest = 0
			continue
		default:
			place := m[1] + ":" + m[2]
			places[place]++
			rest = restLines
			if places[place] > samePlace {
				rest = 0
				continue
			}
		}
		if len(out) == reasonLines {
			return out
		}
		out = append(out, cut(line))
	}
	return out
}

// source returns a line of a package's source, or nothing if it is not there.
func (s *suite) source(pkg, file, number string) string {
	text, err := os.ReadFile(filepath.Join(s.root, pkg, file))
	n, _ := strconv.Atoi(number)
	lines := strings.Split(string(text), "\n")
	if err != nil || n < 1 || n > len(lines) {
		return ""
	}
	return lines[n-1]
}

// last returns the last lines, or, of a program that died, the first ones that say why.
func last(lines []string, most int) (out []string) {
	died := slices.IndexFunc(lines, func(l string) bool {
		return strings.HasPrefix(l, "panic: ") || strings.HasPrefix(l, "fatal error: ") || strings.HasPrefix(l, "SIGQUIT: ")
	})
	switch {
	case died >= 0:
		lines = lines[died:min(died+most, len(lines))]
	case len(lines) > most:
		lines = lines[len(lines)-most:]
	}
	for _, l := range lines {
		out = append(out, cut(l))
	}
	return out
}

// cut bounds a line. Of a long one it keeps both ends.
func cut(line string) string {
	if len(line) <= lineHead+lineTail {
		return line
	}
	tail := len(line) - lineTail
	return strings.ToValidUTF8(line[:lineHead], "") + fmt.Sprintf("... (%d bytes more) ...", tail-lineHead) +
		strings.ToValidUTF8(line[tail:], "")
}
