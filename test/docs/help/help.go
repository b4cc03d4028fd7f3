// Package help keeps what commands say of themselves on the pages of the reference, between two marks. Each program's
// tests call it, since they alone have its commands.
package help

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The marks between which a page is generated.
const (
	begin = "<!-- BEGIN GENERATED: help -->\n"
	end   = "<!-- END GENERATED: help -->\n"
)

// Check compares the generated part of a page with the help of commands and of all below them. If update is true it
// writes that part instead.
func Check(t *testing.T, page string, update bool, commands ...*cobra.Command) {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(b), begin)
	have, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		t.Fatalf("%s: want the lines %q and %q around what is generated", page, begin, end)
	}
	var want strings.Builder
	for _, c := range commands {
		write(&want, c)
	}
	switch {
	case update:
		if err := os.WriteFile(page, []byte(before+begin+want.String()+end+after), 0o644); err != nil {
			t.Fatal(err)
		}
	case have != want.String():
		t.Errorf("%s is not what the commands say of themselves: run this test with -update\n%s", page,
			difference(have, want.String()))
	}
}

// write writes the help of a command, and of those below it.
func write(b *strings.Builder, c *cobra.Command) {
	if !c.IsAvailableCommand() || c.Name() == "help" || c.Name() == "completion" {
		return
	}
	if c.Runnable() && !c.HasAvailableSubCommands() {
		fmt.Fprintf(b, "\n### `%s`\n\n```text\n%s\n\n%s\n", c.CommandPath(), c.UseLine(), strings.TrimSpace(long(c)))
		if flags := flags(c); flags != "" {
			fmt.Fprintf(b, "\n%s", flags)
		}
		b.WriteString("```\n")
	}
	for _, below := range c.Commands() {
		write(b, below)
	}
	if !c.HasParent() {
		b.WriteString("\n")
	}
}

func long(c *cobra.Command) string {
	if c.Long != "" {
		return c.Long
	}
	return c.Short
}

// flags returns what a command's own flags mean, without --help.
func flags(c *cobra.Command) string {
	const columns = 110
	own := pflag.NewFlagSet(c.Name(), pflag.ContinueOnError)
	c.NonInheritedFlags().VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && f.Name != "version" {
			own.AddFlag(f)
		}
	})
	return own.FlagUsagesWrapped(columns)
}

// difference returns the first lines that differ.
func difference(have, want string) string {
	a, b := strings.Split(have, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("it has  %q\nwant it %q", a[i], b[i])
		}
	}
	return fmt.Sprintf("it has %d lines, want %d", len(a), len(b))
}
