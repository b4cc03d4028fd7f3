// Command inside is in the images of programs. It answers their client over HTTP, one line to each GET /ask?q=QUESTION.
//
//	inside serve [flags]         is a server itself, with burdens for the kernel's state
//	inside bridge COMMAND        passes questions on to a program, a line each, and its lines back
//	inside chromium COMMAND      passes questions on to a page in Chromium, over its DevTools protocol
//
// The questions are
//
//	p       answered by ok
//	w S N   append the number N to stream S; answered by ok
//	c       answered by the number and the chain of each stream, and the digest of the data that does not change
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
)

// asker answers questions.
type asker interface {
	ask(question string) (string, error)
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "inside:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 1 {
		return fmt.Errorf("want serve, bridge or chromium")
	}
	switch args[0] {
	case "serve":
		return serve(args[1:])
	case "bridge":
		a, err := startBridge(args[1:])
		if err != nil {
			return err
		}
		return listen(":8080", a)
	case "chromium":
		a, err := startChromium(args[1:])
		if err != nil {
			return err
		}
		return listen(":8080", a)
	}
	return fmt.Errorf("%q: want serve, bridge or chromium", args[0])
}

// listen answers at an address.
func listen(address string, a asker) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := a.ask(r.URL.Query().Get("q"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		fmt.Fprintln(w, answer)
	}))
}
