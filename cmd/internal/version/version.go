// Package version returns the Diapause version of a program.
package version

import "runtime/debug"

// Own returns the version of the module that this program was built from. If it has none, it returns the commit.
func Own() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			return s.Value
		}
	}
	return "devel"
}
