package agent

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
)

// TestTurnsInOrder has many wait for one name, while another name is free.
func TestTurnsInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns()
		release, err := turns.take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		var order []int
		for i := range 10 {
			go func() {
				release, err := turns.take(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i) // guarded by the turn
				release()
			}()
			synctest.Wait() // it waits now
		}
		other, err := turns.take(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		other()
		if len(order) != 0 || !turns.taken("a") || turns.taken("b") {
			t.Errorf("order %d, taken %v, %v", order, turns.taken("a"), turns.taken("b"))
		}
		release()
		synctest.Wait()
		if !slices.Equal(order, []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
			t.Errorf("order %d", order)
		}
		if len(turns.named) != 0 {
			t.Errorf("%d names are kept", len(turns.named))
		}
	})
}

func TestTurnGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := newTurns()
		release, err := turns.take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		got := make(chan error, 1)
		go func() {
			_, err := turns.take(ctx, "a")
			got <- err
		}()
		synctest.Wait()
		cancel(ErrStopping)
		if err := <-got; !errors.Is(err, ErrStopping) {
			t.Errorf("given up: %v", err)
		}
		release()
		if release, err = turns.take(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		release()
		if len(turns.named) != 0 {
			t.Errorf("%d names are kept", len(turns.named))
		}
	})
}
