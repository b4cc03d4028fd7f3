package keylock

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

var errGivenUp = errors.New("given up")

// TestInOrder lets many goroutines wait for one name, while another name is free.
func TestInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := New()
		unlock, err := locks.Lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		var order []int
		for i := range 10 {
			go func() {
				unlock, err := locks.Lock(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i) // guarded by the lock
				unlock()
			}()
			synctest.Wait() // it waits now
		}
		other, err := locks.Lock(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		other()
		if len(order) != 0 || !locks.Locked("a") || locks.Locked("b") {
			t.Errorf("order %d, taken %v, %v", order, locks.Locked("a"), locks.Locked("b"))
		}
		unlock()
		synctest.Wait()
		if !slices.Equal(order, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
			t.Errorf("order %d", order)
		}
		if len(locks.named) != 0 {
			t.Errorf("%d names are kept", len(locks.named))
		}
	})
}

func TestGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := New()
		unlock, err := locks.Lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		got := make(chan error, 1)
		go func() {
			_, err := locks.Lock(ctx, "a")
			got <- err
		}()
		synctest.Wait()
		cancel(errGivenUp)
		if err := <-got; !errors.Is(err, errGivenUp) {
			t.Errorf("given up: %v", err)
		}
		unlock()
		if unlock, err = locks.Lock(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		unlock()
		if len(locks.named) != 0 {
			t.Errorf("%d names are kept", len(locks.named))
		}
	})
}
