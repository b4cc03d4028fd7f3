package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// What a record gets without an allowance, what is dropped, and what is refused is in plan.go, mounts.go and
// security.go; which runtime handlers it may name, in package cri.

// ErrNotAllowed is the kind of error for a recorded pod that asks for more than a record may.
var ErrNotAllowed = errors.New("a snapshot may not ask for that by itself")

// Allowance is something that a recorded pod may ask for because an operator has said so, as "KIND" or "KIND:VALUE".
type Allowance string

// The kinds of allowances. Those in plainKinds have no value.
const (
	kindAnnotation = "annotation"
	kindApparmor   = "apparmor"
	kindCapability = "capability"
	kindCDI        = "cdi-device"
	kindCgroup     = "cgroup-parent"
	kindDevice     = "device"
	kindHostPath   = "host-path"
	kindLabel      = "label"
	kindNamespace  = "host-namespace"
	kindPrivileged = "privileged"
	kindResource   = "resource"
	kindSeccomp    = "seccomp"
	kindSELinux    = "selinux"
	kindSysctl     = "sysctl"
	kindUserNS     = "user-namespace"
)

var (
	plainKinds  = []string{kindPrivileged, kindUserNS}
	valuedKinds = []string{
		kindAnnotation, kindApparmor, kindCapability, kindCDI, kindCgroup, kindDevice, kindHostPath, kindLabel,
		kindNamespace, kindResource, kindSeccomp, kindSELinux, kindSysctl,
	}
)

// ParseAllowances returns the allowances that texts name, or an error that says what is wrong with one of them.
func ParseAllowances(texts []string) ([]Allowance, error) {
	all := make([]Allowance, 0, len(texts))
	for _, text := range texts {
		kind, value, valued := strings.Cut(text, ":")
		if !valued && slices.Contains(plainKinds, kind) || value != "" && slices.Contains(valuedKinds, kind) {
			all = append(all, Allowance(text))
			continue
		}
		return nil, fmt.Errorf("allowance %.200q: want %s, or one of %s with a value, as in host-path:/data", text,
			strings.Join(plainKinds, ", "), strings.Join(valuedKinds, ", "))
	}
	return all, nil
}

// consent decides what a recorded pod gets beyond what every record may ask for.
type consent struct {
	given  []Allowance
	lacked []lack // each once
	noted  map[lack]bool
}

// lack is something that a record asks for and that is not allowed.
type lack struct {
	allowance Allowance
	where     string // the pod or a container
}

// to reports whether something is allowed. If not, it notes that.
func (c *consent) to(kind, value, where string) bool {
	a := Allowance(kind)
	if !slices.Contains(plainKinds, kind) {
		a += Allowance(":" + value)
	}
	if slices.Contains(c.given, a) {
		return true
	}
	if x := (lack{a, where}); !c.noted[x] {
		if c.noted == nil {
			c.noted = make(map[lack]bool)
		}
		c.noted[x], c.lacked = true, append(c.lacked, x)
	}
	return false
}

// may reports whether the operator allows something. If not, the plan fails in the end.
func (p *Plan) may(kind, value string) bool { return p.consent.to(kind, value, p.where) }

// maxNamed bounds how many things an error names.
const maxNamed = 20

// err returns an error that names what was asked for and is not allowed, and the flags that would allow it; nil if
// there is nothing.
func (c *consent) err() error {
	if len(c.lacked) == 0 {
		return nil
	}
	var asked, flags []string
	for _, x := range c.lacked[:min(len(c.lacked), maxNamed)] {
		asked = append(asked, fmt.Sprintf("%s: %s", x.where, printable(string(x.allowance))))
		if f := "--allow=" + quoted(string(x.allowance)); !slices.Contains(flags, f) {
			flags = append(flags, f)
		}
	}
	more := ""
	if n := len(c.lacked) - maxNamed; n > 0 {
		more = fmt.Sprintf("; and %d more", n)
	}
	return fmt.Errorf("%w: %s%s: if you trust where the snapshot comes from, allow it with %s", ErrNotAllowed,
		strings.Join(asked, "; "), more, strings.Join(flags, " "))
}

// printable shortens a text from a record and escapes what a terminal would obey.
func printable(text string) string {
	q := fmt.Sprintf("%.200q", text)
	if q == `"`+text+`"` {
		return text
	}
	return q
}

// quoted returns a text as a shell takes it for one word.
func quoted(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return !strings.ContainsRune(plainRunes, r) }) {
		return text
	}
	return "'" + strings.ReplaceAll(strings.Trim(fmt.Sprintf("%.200q", text), `"`), "'", `'\''`) + "'"
}

// plainRunes need no quotes in a shell.
const plainRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./:=,@+~"
