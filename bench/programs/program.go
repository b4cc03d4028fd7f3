package programs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"diapause.dev/test/images"
)

// Streams is how many streams of writes a client has.
const Streams = 2

// Program is a real program in a pod of one container.
type Program struct {
	Name    string
	Image   images.Debian
	Command []string
	Env     map[string]string
	// Fill, if set, is called once after the program's first answer. It gives the program its data.
	Fill func(ctx context.Context, ip string) error
	// Dial makes a session with the program at an address, or returns an error as long as that does not answer.
	Dial func(ctx context.Context, ip string) (Session, error)
	// Warm is how long the load has to last until the program's state no longer grows.
	Warm time.Duration
	// Large programs are restored one at a time only.
	Large bool
}

// Session is one client of a program. Its methods are called one at a time.
type Session interface {
	// Ping returns once the program has answered.
	Ping(ctx context.Context) error
	// Write has the program append the number n to a stream, and returns once it has acknowledged that.
	Write(ctx context.Context, stream int, n int64) error
	// Check has the program look at all it has.
	Check(ctx context.Context) (Found, error)
	Close() error
}

// Found is what a program has after an invariant of its own was found to hold.
type Found struct {
	Writes [Streams]int64 // the last number of each stream, which has this and all before it
	Digest string         // of the data that does not change
}

// ByName returns the programs of these names, or an error that lists all.
func ByName(names []string) (list []*Program, err error) {
	for _, name := range names {
		i := slices.IndexFunc(all, func(p *Program) bool { return p.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("%.40q: want some of %s", name, strings.Join(Names(), ","))
		}
		list = append(list, all[i])
	}
	return list, nil
}

// Names returns the names of all programs.
func Names() (names []string) {
	for _, p := range all {
		names = append(names, p.Name)
	}
	return names
}
