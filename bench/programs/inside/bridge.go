package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// bridge is a program that reads a question from its standard input, a line, and writes the answer.
type bridge struct {
	mu  sync.Mutex
	in  io.Writer
	out *bufio.Reader
}

// startBridge starts the program, with which this one ends.
func startBridge(args []string) (*bridge, error) {
	if len(args) == 0 {
		return nil, fmt.Errorf("want a command")
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &bridge{in: in, out: bufio.NewReader(out)}, nil
}

func (b *bridge) ask(question string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, err := io.WriteString(b.in, question+"\n"); err != nil {
		return "", err
	}
	answer, err := b.out.ReadString('\n')
	return strings.TrimSpace(answer), err
}
