package snapshot

import "fmt"

// Scope is how much of a pod a snapshot keeps.
type Scope string

// The scopes.
const (
	WholePod   Scope = ""            // memory, processes and files
	RootfsOnly Scope = "rootfs-only" // root file systems, and volumes that the sandbox keeps in files
)

// String returns the scope's name.
func (s Scope) String() string {
	if s == WholePod {
		return "whole-pod"
	}
	return string(s)
}

// Validate returns an error unless the scope is known.
func (s Scope) Validate() error {
	if s != WholePod && s != RootfsOnly {
		return fmt.Errorf("scope %.80q is not known: want %s or %s", string(s), WholePod, RootfsOnly)
	}
	return nil
}
