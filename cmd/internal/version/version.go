// Package version returns the Diapause version of a program.
package version

import (
	"cmp"
	"runtime/debug"
)

// commit is what a release was built from; "make release" sets it.
var commit string

// Own returns the version of the module that this program was built from. If it has none, it returns the commit.
func Own() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return cmp.Or(commit, "unknown")
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return cmp.Or(commit, "devel")
}
