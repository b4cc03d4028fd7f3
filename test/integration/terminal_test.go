package integration

import (
	"testing"

	"diapause.dev/test/bed"
)

// interactive is a pod of containers with a terminal, one of them in raw mode and one that shows each new
// size, and of one that has a standard input alone.
func interactive(name string) bed.PodSpec {
	sizes := "trap 'stty size' WINCH; while true; do sleep 0.05; done"
	return bed.PodSpec{Name: name, Containers: []bed.Container{
		{Name: "shell", Command: []string{"/bin/sh"}, TTY: true, Stdin: true},
		{Name: "raw", Command: []string{"/bin/sh", "-c", "stty raw -echo; exec cat"}, TTY: true, Stdin: true},
		{Name: "size", Command: []string{"/bin/sh", "-c", sizes}, TTY: true, Stdin: true},
		{Name: "plain", Command: []string{"/bin/cat"}, Stdin: true},
	}}
}

// seat is somebody at a container.
type seat struct {
	*node
	*bed.Attachment
}

func (n *node) attach(p *bed.Pod, container string) seat {
	n.Helper()
	a, err := n.bed.Attach(n.ctx, p.Container(container), container != "plain")
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(a.Detach)
	return seat{n, a}
}

// types sends keystrokes, and waits until a text is shown.
func (s seat) types(keys, shown string) {
	s.Helper()
	if err := s.Type(keys); err != nil {
		s.Fatal(err)
	}
	s.shows(shown)
}

func (s seat) shows(text string) {
	s.Helper()
	if err := s.Shows(s.ctx, text, 1); err != nil {
		s.Fatal(err)
	}
}

func (s seat) resize(columns, rows uint16) {
	s.Helper()
	if err := s.Resize(s.ctx, columns, rows); err != nil {
		s.Fatal(err)
	}
}

// TestTerminal freezes an interactive pod while somebody sits at it, and restores it twice over: shells go on,
// modes and sizes are what they were, and whoever attaches can type and resize.
func TestTerminal(t *testing.T) {
	n := start(t)
	p, err := n.bed.RunPod(n.ctx, interactive("origin"))
	if err != nil {
		t.Fatal(err)
	}
	shell, size := n.attach(p, "shell"), n.attach(p, "size")
	shell.types("x=kept; echo be''gun\r", "begun")
	n.resized(size, 101, 33, "33 101")
	n.session(p)
	if err := n.during("capture", request(p, false), func() { shell.Type("echo du''ring$x\r") }); err != nil {
		t.Fatal(err)
	}
	shell.shows("duringkept")
	shell.types("echo af''ter$x\r", "afterkept")

	n.checkpoint("origin", "--name=one", "--stop")
	again := n.restore("one", "--name=again")[0]
	n.interacts(again, "33 101")
	n.checkpoint("again", "--name=two")
	n.interacts(again, "22 77")
	n.interacts(n.restore("two", "--name=third")[0], "22 77")
}

// session leaves a shell open that is started at a terminal of its own.
func (n *node) session(p *bed.Pod) {
	n.Helper()
	e, err := n.bed.ExecTerminal(n.ctx, p.Container("shell"), "/bin/sh")
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(e.Detach)
	s := seat{n, e}
	s.types("echo ex''ec$((0)); stty size\r", "exec0")
	s.resize(55, 44)
	s.types("stty size\r", "44 55")
}

// resized gives a terminal another size, and waits until its container shows that.
func (n *node) resized(s seat, columns, rows uint16, shown string) {
	n.Helper()
	s.resize(columns, rows)
	s.shows(shown)
}

// interacts does everything that can be done with an interactive pod. Its third container's terminal has a size.
func (n *node) interacts(p *bed.Pod, has string) {
	n.Helper()
	n.attach(p, "shell").types("echo ag''ain$x\r", "againkept")
	raw := n.attach(p, "raw")
	raw.types("ab", "ab")
	raw.types("cd", "cd")
	if s := raw.Screen(); s != "abcd" {
		n.Errorf("a terminal in raw mode shows %q", s)
	}
	size := n.attach(p, "size")
	if _, code, err := n.bed.Exec(n.ctx, p.Container("size"), "/bin/kill", "-WINCH", "1"); err != nil || code != 0 {
		n.Errorf("exit code %d, %v", code, err)
	}
	size.shows(has)
	n.resized(size, 60, 20, "20 60")
	n.resized(size, 77, 22, "22 77")
	n.attach(p, "plain").types("typed\n", "typed")
	n.session(p)
}
