package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// chromium is a browser with one page, whose function answer(question) is asked. Its DevTools protocol goes over two
// pipes, and each message ends in a byte 0.
type chromium struct {
	mu      sync.Mutex
	in      *os.File
	out     *bufio.Reader
	session string
	id      int
}

// startChromium starts the browser; the last argument is the address of the page.
func startChromium(args []string) (*chromium, error) {
	if len(args) < 2 {
		return nil, fmt.Errorf("want a command that ends in the address of a page")
	}
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	page := args[len(args)-1]
	cmd := exec.Command(args[0], append(args[1:len(args)-1], "--remote-debugging-pipe", "about:blank")...)
	cmd.ExtraFiles = []*os.File{inR, outW} // 3 and 4, as the browser expects them
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	inR.Close()
	outW.Close()
	c := &chromium{in: inW, out: bufio.NewReaderSize(outR, 64<<10)}
	return c, c.open(page)
}

// open opens the page and waits until it answers.
func (c *chromium) open(page string) error {
	var target struct {
		TargetID string `json:"targetId"`
	}
	if err := c.call("Target.createTarget", map[string]any{"url": page}, &target); err != nil {
		return err
	}
	var session struct {
		SessionID string `json:"sessionId"`
	}
	err := c.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	c.session = session.SessionID
	return err
}

// message is what either side sends.
type message struct {
	ID      int             `json:"id,omitempty"`
	Method  string          `json:"method,omitempty"`
	Params  any             `json:"params,omitempty"`
	Session string          `json:"sessionId,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   json.RawMessage `json:"error,omitempty"`
}

// call calls a method and waits for its result. Events are dropped.
func (c *chromium) call(method string, params map[string]any, result any) error {
	c.id++
	data, err := json.Marshal(message{ID: c.id, Method: method, Params: params, Session: c.session})
	if err != nil {
		return err
	}
	if _, err := c.in.Write(append(data, 0)); err != nil {
		return err
	}
	for {
		data, err := c.out.ReadBytes(0)
		if err != nil {
			return err
		}
		var m message
		if err := json.Unmarshal(data[:len(data)-1], &m); err != nil {
			return err
		}
		if m.ID != c.id {
			continue
		}
		if m.Error != nil {
			return fmt.Errorf("%s: %s", method, m.Error)
		}
		return json.Unmarshal(m.Result, result)
	}
}

func (c *chromium) ask(question string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	quoted, err := json.Marshal(question)
	if err != nil {
		return "", err
	}
	var evaluated struct {
		Result struct {
			Value string `json:"value"`
		} `json:"result"`
		Exception json.RawMessage `json:"exceptionDetails"`
	}
	err = c.call("Runtime.evaluate", map[string]any{"expression": "answer(" + string(quoted) + ")", "returnByValue": true},
		&evaluated)
	if err == nil && evaluated.Exception != nil {
		err = fmt.Errorf("the page: %s", evaluated.Exception)
	}
	return strings.TrimSpace(evaluated.Result.Value), err
}
