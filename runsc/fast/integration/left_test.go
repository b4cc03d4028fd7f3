package integration

import (
	"os"
	"testing"
)

// exec has a guest run in the sandbox, with a pipe for its output, and waits for its end. The pipe is read by nobody,
// and stays open until the end of the test.
func (s *sandbox) exec(t *testing.T, flags ...string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	defer w.Close()
	cmd := s.command(append([]string{"exec", s.id, "/guest"}, flags...)...)
	cmd.Stdout = w
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s exec %q: %v", s.build, flags, err)
	}
}

// asks has a guest ask the one that serves a socket.
func (s *sandbox) asks(t *testing.T, question, socket string) {
	t.Helper()
	s.run(t, "exec", s.id, "/guest", "--ask="+question, "--socket="+socket)
}

const (
	left     = "/tmp/left"     // served by a guest whose session has ended
	session  = "/tmp/session"  // served by a session's root that runs
	children = "/tmp/children" // served by the child of that root
)

// TestLeftBehind saves a sandbox in which one session of exec has ended, and left a guest behind, and one runs. This
// build restores both guests that no longer have a session, from what either build has saved, and again from what it
// has saved itself. The root of the session that ran is gone. GVisor's build kills all three.
func TestLeftBehind(t *testing.T) {
	for _, from := range []string{stock, fast} {
		t.Run("from "+from, func(t *testing.T) {
			origin := newSandbox(t, from, "origin")
			origin.start(t)
			origin.exec(t, "--leave="+left)
			origin.run(t, "exec", "--detach", origin.id, "/guest", "--socket="+session, "--leave="+children)
			for _, socket := range []string{left, children, session} {
				origin.asks(t, "check", socket)
			}
			image := origin.save(t, "none")
			for i := range 2 {
				s := newSandbox(t, fast, []string{"first", "second"}[i])
				s.restore(t, image)
				s.asks(t, "gone", session)
				s.asks(t, "check", left)
				s.asks(t, "lost", left)
				s.asks(t, "check", children)
				s.check(t)
				image = s.save(t, "none")
			}
			s := newSandbox(t, stock, "killed")
			s.restore(t, image)
			for _, socket := range []string{left, children, session} {
				s.asks(t, "gone", socket)
			}
			s.check(t)
		})
	}
}
