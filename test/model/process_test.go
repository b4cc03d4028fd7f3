package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// process is a node as the model sees it. It is used by one goroutine.
type process struct {
	config nodeConfig
	cmd    *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
	stderr *strings.Builder
}

var errKilled = errors.New("the node was killed")

func startProcess(config nodeConfig) (*process, error) {
	p := &process{config: config}
	return p, p.start()
}

func (p *process) start() error {
	text, err := json.Marshal(p.config)
	if err != nil {
		return err
	}
	p.cmd, p.stderr = exec.Command(os.Args[0]), &strings.Builder{}
	p.cmd.Env = append(os.Environ(), nodeVariable+"="+string(text))
	p.cmd.Stderr = p.stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	p.out = json.NewDecoder(out)
	return p.cmd.Start()
}

// do has the node do a command. If kill is positive, the node is killed after that time, and
// another one takes its place; unless it was faster, the error is errKilled then.
func (p *process) do(c command, kill time.Duration) (a answer, err error) {
	if err := json.NewEncoder(p.in).Encode(c); err != nil {
		return a, p.explain(err)
	}
	if kill <= 0 {
		err = p.explain(p.out.Decode(&a))
		return a, err
	}
	time.Sleep(kill)
	if err := p.cmd.Process.Kill(); err != nil {
		return a, err
	}
	answered := p.out.Decode(&a) == nil
	_ = p.cmd.Wait() // it was killed
	if err := p.start(); err != nil {
		return a, err
	}
	if !answered {
		return answer{}, errKilled
	}
	return a, nil
}

func (p *process) explain(err error) error {
	if err == nil {
		return nil
	}
	_ = p.cmd.Process.Kill()
	return fmt.Errorf("node: %w (%v): %s", err, p.cmd.Wait(), p.stderr)
}

// stop ends the node.
func (p *process) stop() error {
	return errors.Join(p.in.Close(), p.cmd.Wait())
}
