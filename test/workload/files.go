package main

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"

	"diapause.dev/test/workload/answers"
)

// maxFiles bounds how many files may be held open.
const maxFiles = 1 << 16

// held are files that stay open, each of which has its number as content.
type held struct {
	mu    sync.Mutex
	files []*os.File
}

// open creates files in a directory, and keeps them open.
func (h *held) open(r *http.Request) (any, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n, err := strconv.Atoi(r.FormValue("n"))
	if err != nil || n < 1 || n > maxFiles-len(h.files) {
		return nil, fmt.Errorf("n=%.40q: want 1 to %d in all", r.FormValue("n"), maxFiles)
	}
	dir := r.FormValue("dir")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for range n {
		name := strconv.Itoa(len(h.files))
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		h.files = append(h.files, f)
		if _, err := f.WriteString(name); err != nil {
			return nil, err
		}
	}
	return answers.Files{Open: len(h.files)}, nil
}

// verify reads all files by their descriptors.
func (h *held) verify(*http.Request) (any, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, f := range h.files {
		want := strconv.Itoa(i)
		got := make([]byte, len(want))
		if _, err := f.ReadAt(got, 0); err != nil || string(got) != want {
			return nil, errors.Join(fmt.Errorf("%s has %q, want %q", f.Name(), got, want), err)
		}
	}
	return answers.Files{Open: len(h.files)}, nil
}
