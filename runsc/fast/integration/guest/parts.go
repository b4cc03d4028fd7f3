package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// makeFiles writes files, a directory for each hundred. Every tenth stays open, at an offset of its own.
func (s *state) makeFiles() (func() error, error) {
	var open []*os.File
	for i := range s.files {
		f, err := s.makeFile(i)
		if err != nil {
			return nil, err
		}
		if i%10 == 0 && len(open) < 500 {
			open = append(open, f)
		} else {
			f.Close()
		}
	}
	return func() error { return errors.Join(s.checkFiles(), checkOpen(open)) }, nil
}

func (s *state) path(i int) string {
	return filepath.Join(s.dir, "d"+strconv.Itoa(i/100), "file"+strconv.Itoa(i))
}

func content(i int) []byte { return fmt.Appendf(nil, "file %d: %x", i, i*i) }

func (s *state) makeFile(i int) (*os.File, error) {
	path := s.path(i)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if _, err := f.Write(content(i)); err != nil {
		return nil, err
	}
	if i%7 == 0 {
		err = errors.Join(os.Symlink(path, path+".link"), os.Link(path, path+".hard"))
	}
	_, seekErr := f.Seek(int64(i%5), io.SeekStart)
	return f, errors.Join(err, seekErr, os.Chmod(path, os.FileMode(0o600+i%64)))
}

func (s *state) checkFiles() error {
	for i := range s.files {
		path := s.path(i)
		names := []string{path}
		if i%7 == 0 {
			names = append(names, path+".link", path+".hard")
		}
		for _, name := range names {
			got, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			if !bytes.Equal(got, content(i)) {
				return fmt.Errorf("%s holds %q", name, got)
			}
		}
		if info, err := os.Stat(path); err != nil || info.Mode() != os.FileMode(0o600+i%64) {
			return fmt.Errorf("%s is %v, %v", path, info, err)
		}
	}
	return nil
}

// checkOpen checks offsets, and leaves them as they are.
func checkOpen(open []*os.File) error {
	for n, f := range open {
		want := int64(n * 10 % 5)
		if at, err := f.Seek(0, io.SeekCurrent); err != nil || at != want {
			return fmt.Errorf("%s is at %d, %v, want %d", f.Name(), at, err, want)
		}
	}
	return nil
}

// makeConnections leaves connections in TIME_WAIT, and one that goes on. The check talks over that one, and makes
// another to the same listener.
func (s *state) makeConnections() (func() error, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go echo(l)
	for range s.waiting {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return nil, err
		}
		if err := talk(c, "once"); err != nil {
			return nil, err
		}
		c.Close() // it closes first, so it waits
	}
	kept, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return nil, err
	}
	return func() error {
		fresh, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			return err
		}
		defer fresh.Close()
		return errors.Join(talk(kept, "kept"), talk(fresh, "fresh"))
	}, nil
}

// echo answers each line with itself.
func echo(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			for in := bufio.NewScanner(c); in.Scan(); {
				fmt.Fprintln(c, in.Text())
			}
		}()
	}
}

// answerTime bounds the wait for an answer over a connection.
const answerTime = 20 * time.Second

func talk(c net.Conn, line string) error {
	if err := c.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(c, line); err != nil {
		return err
	}
	got, err := bufio.NewReader(c).ReadString('\n')
	if err == nil && got != line+"\n" {
		err = fmt.Errorf("the answer to %q is %q", line, got)
	}
	return err
}

// makeThreads starts threads that wait. The check has each of them do something.
func (s *state) makeThreads() (func() error, error) {
	asks := make([]chan chan int, s.threads)
	var started sync.WaitGroup
	for i := range asks {
		asks[i] = make(chan chan int)
		started.Add(1)
		go func() {
			runtime.LockOSThread()
			started.Done()
			for reply := range asks[i] {
				reply <- i
			}
		}()
	}
	started.Wait()
	return func() error {
		for i, ask := range asks {
			reply := make(chan int)
			ask <- reply
			if got := <-reply; got != i {
				return fmt.Errorf("thread %d says %d", i, got)
			}
		}
		return nil
	}, nil
}

// makePipe leaves bytes in a pipe. The check reads them, and puts them back.
func makePipe() (func() error, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	want := bytes.Repeat([]byte("in the pipe "), 1000)
	_, err = w.Write(want)
	return func() error {
		got := make([]byte, len(want))
		if _, err := io.ReadFull(r, got); err != nil {
			return err
		}
		if !bytes.Equal(got, want) {
			return errors.New("other bytes are in it")
		}
		_, err := w.Write(got)
		return err
	}, err
}

// makeProcess starts a child, another guest that serves a socket of its own. The check asks it.
func makeProcess() (func() error, error) {
	if os.Getenv("GUEST_CHILD") != "" {
		return func() error { return nil }, nil
	}
	dir, err := os.MkdirTemp("", "child")
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "socket")
	cmd := exec.Command("/proc/self/exe", "--socket="+socket, "--dir="+dir, "--files=20", "--threads=2")
	cmd.Env = []string{"GUEST_CHILD=1"}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return func() error { return inquire(socket, "check") }, inquire(socket, "wait")
}

// makeTimer starts a ticker. The check waits for its next tick.
func makeTimer() (func() error, error) {
	ticker := time.NewTicker(50 * time.Millisecond)
	return func() error {
		select {
		case <-ticker.C:
			return nil
		case <-time.After(answerTime):
			return errors.New("it does not tick")
		}
	}, nil
}

// makeMemory maps memory. Of its pages some are written, some are written and then zero again, some are never touched
// before the first check, and the last quarter is one large hole until then.
func makeMemory() (func() error, error) {
	const size, pages = 4096, 8192
	m, err := syscall.Mmap(-1, 0, pages*size, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return nil, err
	}
	for i := range pages * 3 / 4 {
		page := m[i*size : (i+1)*size]
		switch i % 5 {
		case 0, 3:
			copy(page[i%4000:], fmt.Sprint(i))
		case 1:
			page[i%size] = 1
			page[i%size] = 0
		}
	}
	return func() error {
		want := make([]byte, size)
		for i := range pages {
			clear(want)
			if i < pages*3/4 && (i%5 == 0 || i%5 == 3) {
				copy(want[i%4000:], fmt.Sprint(i))
			}
			if !bytes.Equal(m[i*size:(i+1)*size], want) {
				return fmt.Errorf("page %d holds other bytes", i)
			}
		}
		return nil
	}, nil
}
