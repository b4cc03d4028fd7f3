package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"diapause.dev/test/workload/internal/gap"
	"diapause.dev/test/workload/internal/identity"
)

// server answers what every mode answers.
type server struct {
	mux   *http.ServeMux
	life  *identity.Identity
	meter gap.Meter
	asked chan struct{} // closed by the first who asks for gaps: measuring them takes a good part of a processor
	rests bool          // neither counts nor measures gaps
}

func newServer() *server {
	s := &server{mux: http.NewServeMux(), life: identity.New(), asked: make(chan struct{})}
	ask := sync.OnceFunc(func() { close(s.asked) })
	s.handle("GET /state", func(*http.Request) (any, error) { return s.life.State(), nil })
	s.handle("GET /later", func(r *http.Request) (any, error) { return s.life.State(), later(r) })
	s.handle("GET /gap", func(r *http.Request) (any, error) {
		ask()
		return s.meter.Report(r.FormValue("reset") == "1"), nil
	})
	return s
}

// maxLater bounds how long an answer can be put off, in seconds.
const maxLater = 600

// later returns after as many seconds as the request says, or when the asker is gone.
func later(r *http.Request) error {
	seconds, err := strconv.Atoi(r.FormValue("seconds"))
	if err != nil || seconds < 0 || seconds > maxLater {
		return fmt.Errorf("seconds=%.40q: want 0 to %d", r.FormValue("seconds"), maxLater)
	}
	select {
	case <-time.After(time.Duration(seconds) * time.Second):
		return nil
	case <-r.Context().Done():
		return r.Context().Err()
	}
}

// handle answers with what f returns as JSON; an error is the asker's.
func (s *server) handle(pattern string, f func(*http.Request) (any, error)) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(v) // the asker may be gone
	})
}

// run answers until ctx ends, which is no failure.
func (s *server) run(ctx context.Context, address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	if !s.rests {
		wg.Go(func() { s.life.Run(ctx) })
		wg.Go(func() { s.measure(ctx) })
	}
	web := &http.Server{Handler: s.mux, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = web.Close() })
	fmt.Println("workload: ready at", l.Addr())
	err = web.Serve(l)
	stop()
	cancel()
	wg.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// measure measures gaps once somebody has asked for them, until ctx ends.
func (s *server) measure(ctx context.Context) {
	select {
	case <-s.asked:
		s.meter.Run(ctx)
	case <-ctx.Done():
	}
}
