// Command guest gives the kernel of a sandbox a state of some size, and says whether it is whole. The tests run it in
// sandboxes that one build of runsc has saved and the other restores.
//
// Without --ask it sets everything up and then serves the socket --socket: who sends "check" is answered "ok", or what
// is not as it should be. Who sends "wait" is answered "ok". With --ask it sends one of these to such a guest, and
// fails if that does not answer "ok". With --ask=gone it waits until nobody serves the socket. Who sends "lost" is
// answered "ok" if the guest's standard output is lost.
//
// With --leave it starts another guest that serves that socket, and has its standard output. Then it ends, unless it
// has a socket to serve.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

func main() {
	var (
		s      state
		socket = flag.String("socket", "", "path of the socket that is served, or asked")
		ask    = flag.String("ask", "", "what to ask the guest that serves the socket: check, wait, lost or gone")
		leave  = flag.String("leave", "", "path of the socket that a guest serves which is left behind")
	)
	flag.StringVar(&s.dir, "dir", "", "directory for files")
	flag.IntVar(&s.files, "files", 0, "number of files")
	flag.IntVar(&s.waiting, "waiting", 0, "number of connections that go to TIME_WAIT")
	flag.IntVar(&s.threads, "threads", 0, "number of threads")
	flag.Parse()
	if err := s.run(*socket, *ask, *leave); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (s *state) run(socket, ask, leave string) error {
	switch {
	case ask == "gone":
		return gone(socket)
	case ask != "":
		return inquire(socket, ask)
	case leave != "":
		if err := leaveBehind(leave); err != nil || socket == "" {
			return err
		}
	}
	return s.serve(socket)
}

// state is what the guest has set up.
type state struct {
	dir                     string
	files, waiting, threads int

	parts []part
}

// part is a part of the state that can be checked any number of times.
type part struct {
	name  string
	check func() error
}

// serve sets everything up, and answers whoever asks.
func (s *state) serve(socket string) error {
	for name, setUp := range map[string]func() (func() error, error){
		"files": s.makeFiles, "connections": s.makeConnections, "threads": s.makeThreads, "pipe": makePipe,
		"process": makeProcess, "timer": makeTimer, "memory": makeMemory,
	} {
		check, err := setUp()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		s.parts = append(s.parts, part{name, check})
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		question, err := bufio.NewReader(c).ReadString('\n')
		if err != nil {
			return err
		}
		answer := "ok"
		switch question {
		case "check\n":
			answer = s.report()
		case "lost\n":
			answer = withoutOutput()
		}
		if _, err := io.WriteString(c, answer); err != nil {
			return err
		}
		c.Close()
	}
}

func (s *state) report() string {
	var all error
	for _, p := range s.parts {
		if err := p.check(); err != nil {
			all = errors.Join(all, fmt.Errorf("%s: %w", p.name, err))
		}
	}
	if all != nil {
		return all.Error()
	}
	return "ok"
}

// inquire asks a guest, which may still be setting up.
func inquire(socket, question string) error {
	c, err := dial(socket)
	if err != nil {
		return err
	}
	defer c.Close()
	if _, err := fmt.Fprintln(c, question); err != nil {
		return err
	}
	answer, err := io.ReadAll(c)
	if err == nil && string(answer) != "ok" {
		err = errors.New(string(answer))
	}
	return err
}

// patience is how long a guest may set up.
const patience = time.Minute

func dial(socket string) (net.Conn, error) {
	for end := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("unix", socket)
		if err == nil || time.Now().After(end) {
			return c, err
		}
	}
}
