package bed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Attachment is somebody who sits at a container, as kubectl attach -i lets them.
type Attachment struct {
	keys  *io.PipeWriter
	sizes sizes
	end   context.CancelFunc
	done  chan error

	mu     sync.Mutex
	screen bytes.Buffer
}

// Attach attaches to the container with that id, which has a standard input and, if tty is set, a terminal.
// It lasts until Detach, or until ctx ends.
func (b *Bed) Attach(ctx context.Context, container string, tty bool) (*Attachment, error) {
	r, err := b.Runtime.Attach(ctx, &cri.AttachRequest{ContainerId: container, Stdin: true, Stdout: true, Tty: tty})
	if err != nil {
		return nil, fmt.Errorf("bed: attach to %s: %w", container, err)
	}
	return stream(ctx, container, r.Url, tty)
}

// ExecTerminal runs a command in the container with that id, at a terminal of its own.
func (b *Bed) ExecTerminal(ctx context.Context, container string, command ...string) (*Attachment, error) {
	r, err := b.Runtime.Exec(ctx, &cri.ExecRequest{
		ContainerId: container, Cmd: command, Stdin: true, Stdout: true,
		Tty: true,
	})
	if err != nil {
		return nil, fmt.Errorf("bed: exec %q in %s: %w", command, container, err)
	}
	return stream(ctx, container, r.Url, true)
}

func stream(ctx context.Context, container, address string, tty bool) (*Attachment, error) {
	to, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("bed: attach to %s: %w", container, err)
	}
	transport, upgrader, err := spdy.RoundTripperFor(&rest.Config{})
	if err != nil {
		return nil, fmt.Errorf("bed: attach to %s: %w", container, err)
	}
	executor, err := remotecommand.NewSPDYExecutorForTransports(transport, upgrader, http.MethodPost, to)
	if err != nil {
		return nil, fmt.Errorf("bed: attach to %s: %w", container, err)
	}
	keyboard, keys := io.Pipe()
	ctx, end := context.WithCancel(ctx)
	a := &Attachment{
		keys: keys, sizes: sizes{ctx: ctx, next: make(chan remotecommand.TerminalSize)}, end: end,
		done: make(chan error, 1),
	}
	go func() {
		o := remotecommand.StreamOptions{Stdin: keyboard, Stdout: a, Tty: tty}
		if tty {
			o.TerminalSizeQueue = a.sizes
		}
		a.done <- executor.StreamWithContext(ctx, o)
		end()
		keyboard.CloseWithError(os.ErrClosed)
	}()
	return a, nil
}

// Write takes what the container shows.
func (a *Attachment) Write(p []byte) (int, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.screen.Write(p)
}

// Screen returns all that the container has shown since it was attached to.
func (a *Attachment) Screen() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.screen.String()
}

// Type sends keystrokes.
func (a *Attachment) Type(keys string) error {
	if _, err := io.WriteString(a.keys, keys); err != nil {
		return fmt.Errorf("bed: type %q: %w", keys, err)
	}
	return nil
}

// Shows waits until the container has shown a text so many times in all.
func (a *Attachment) Shows(ctx context.Context, text string, times int) error {
	return Until(ctx, func() error {
		if n := strings.Count(a.Screen(), text); n < times {
			return fmt.Errorf("bed: %q is shown %d times, not %d, in %q", text, n, times, a.Screen())
		}
		return nil
	})
}

// Resize gives the terminal another size.
func (a *Attachment) Resize(ctx context.Context, columns, rows uint16) error {
	select {
	case a.sizes.next <- remotecommand.TerminalSize{Width: columns, Height: rows}:
		return nil
	case <-a.sizes.ctx.Done():
		return errors.New("bed: resize: nobody is attached")
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Detach leaves the terminal.
func (a *Attachment) Detach() {
	a.end()
	<-a.done
}

// sizes implements remotecommand.TerminalSizeQueue.
type sizes struct {
	ctx  context.Context
	next chan remotecommand.TerminalSize
}

// Next implements remotecommand.TerminalSizeQueue.
func (s sizes) Next() *remotecommand.TerminalSize {
	select {
	case size := <-s.next:
		return &size
	case <-s.ctx.Done():
		return nil
	}
}
