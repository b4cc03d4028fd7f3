package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"diapause.dev/test/docs/help"
)

var update = flag.Bool("update", false, "write the page of the agent")

// page is the reference of the agent.
const page = "../../docs/reference/agent.md"

// TestReference: the page has the help of each command below diapause-agent, and a row for each flag of the agent
// itself with its default, and no other row.
func TestReference(t *testing.T) {
	root := command()
	for _, c := range root.Commands() {
		if f := c.Flags().Lookup("from"); f != nil && c.Name() == "install" {
			f.DefValue = "/usr/local/bin" // where the image has the programs
		}
	}
	help.Check(t, page, *update, root.Commands()...)
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string]string) // the default of each flag
	for _, m := range regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\| (.*?) ?\\|").FindAllStringSubmatch(string(b), -1) {
		rows[m[1]] = m[2]
	}
	root.Flags().VisitAll(func(f *pflag.Flag) {
		have, ok := rows[f.Name]
		delete(rows, f.Name)
		if want := byDefault(f); !ok {
			t.Errorf("%s has no row of --%s: add one", page, f.Name)
		} else if !strings.Contains(have, want) {
			t.Errorf("%s: the default of --%s is %s, and the page says %s", page, f.Name, want, have)
		}
	})
	for name := range rows {
		t.Errorf("%s has a row of --%s, which the agent does not know: remove it", page, name)
	}
}

// byDefault returns a flag's default as pages have it: bytes in powers of 1024, times without parts that are zero.
func byDefault(f *pflag.Flag) string {
	switch n, _ := strconv.ParseInt(f.DefValue, 10, 64); {
	case f.Name == "node":
		return "host name"
	case f.Value.Type() == "int64" && n >= 1<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case f.Value.Type() == "int64" && n >= 1<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case f.Value.Type() == "bool", f.DefValue == "":
		return ""
	case f.Value.Type() == "duration":
		d, err := time.ParseDuration(f.DefValue)
		if err != nil {
			return f.DefValue
		}
		return short(d)
	}
	return f.DefValue
}

func short(d time.Duration) string {
	s := strings.TrimSuffix(d.String(), "0s")
	if strings.HasSuffix(s, "h0m") {
		return strings.TrimSuffix(s, "0m")
	}
	return s
}
