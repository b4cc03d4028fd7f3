// Package version says which Diapause a program is.
package version

import "runtime/debug"

// Own returns the version of the module that this program was built from, or else the commit.
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
