package main

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
)

// streams is how many streams a client writes.
const streams = 2

// server keeps the streams, and data that does not change.
type server struct {
	mu      sync.Mutex
	numbers [streams][]int64
	data    []byte
	files   *files // nil: none
}

// serve makes the burdens, then listens.
func serve(args []string) error {
	f := flag.NewFlagSet("inside serve", flag.ContinueOnError)
	address := f.String("address", ":8080", "`address` to listen at")
	mib := f.Int("mib", 16, "memory that holds data, in `MiB`")
	threads := f.Int("threads", 0, "`number` of threads that wake up again and again")
	count := f.Int("files", 0, "`number` of files to make and keep")
	waits := f.Int("timewait", 0, "`number` of connections to keep in TIME_WAIT")
	if err := f.Parse(args); err != nil {
		return err
	}
	s := &server{data: make([]byte, *mib<<20)}
	random := rand.NewChaCha8([32]byte{1})
	for at := 0; at < len(s.data); at += 4096 {
		random.Read(s.data[at : at+2048])
	}
	startThreads(*threads)
	var err error
	if s.files, err = makeFiles(*count); err != nil {
		return err
	}
	if err := keepWaiting(*waits); err != nil {
		return err
	}
	return listen(*address, s)
}

func (s *server) ask(question string) (string, error) {
	fields := strings.Fields(question)
	switch {
	case len(fields) == 1 && fields[0] == "p":
		return "ok", nil
	case len(fields) == 3 && fields[0] == "w":
		return s.write(fields[1], fields[2])
	case len(fields) == 1 && fields[0] == "c":
		return s.check()
	}
	return "", fmt.Errorf("question %.40q", question)
}

func (s *server) write(stream, number string) (string, error) {
	i, err := strconv.Atoi(stream)
	if err != nil || i < 0 || i >= streams {
		return "", fmt.Errorf("stream %.40q", stream)
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.numbers[i] = append(s.numbers[i], n)
	return "ok", s.files.touch(n)
}

func (s *server) check() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b strings.Builder
	for _, list := range s.numbers {
		h, last := uint32(2166136261), int64(0)
		for _, n := range list {
			h, last = h*16777619^uint32(n), n
		}
		fmt.Fprintf(&b, "%d %d ", last, h)
	}
	sum := sha256.New()
	sum.Write(s.data)
	if err := s.files.check(sum); err != nil {
		return "", err
	}
	fmt.Fprintf(&b, "%x", sum.Sum(nil))
	return b.String(), nil
}
