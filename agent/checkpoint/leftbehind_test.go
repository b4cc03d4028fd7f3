package checkpoint

import (
	"context"
	"testing"

	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
)

// TestLeftBehind: with gVisor's own build, a checkpoint of a pod that had a session says what a restore ends. With the
// repaired build, and of files alone, it does not.
func TestLeftBehind(t *testing.T) {
	for _, tt := range []struct {
		name              string
		repaired, session bool
		scope             snapshot.Scope
		want              string
	}{
		{name: "session", session: true, want: leftBehind},
		{name: "none"},
		{name: "repaired", repaired: true, session: true},
		{name: "files", session: true, scope: snapshot.RootfsOnly},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t)
			r.Facts = func(context.Context, int) (snapshot.Facts, error) { return snapshot.Facts{Repaired: tt.repaired}, nil }
			r.Sessions = func(string) bool { return tt.session }
			warned := ""
			_, _, err := r.save(saving{scope: tt.scope}, Options{
				Name: tt.name, Spooled: func(_ *snapshots.Found, w string) { warned = w },
			})
			if err != nil || warned != tt.want {
				t.Errorf("warning %q, want %q; %v", warned, tt.want, err)
			}
		})
	}
}

// TestJoinWarnings: each warning is there, and nothing else.
func TestJoinWarnings(t *testing.T) {
	for _, tt := range []struct{ a, b, want string }{{}, {"a", "", "a"}, {"", "b", "b"}, {"a", "b", "a; b"}} {
		if got := joinWarnings(tt.a, tt.b); got != tt.want {
			t.Errorf("%q and %q: %q", tt.a, tt.b, got)
		}
	}
}
