package budget

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"diapause.dev/agent/errkind"
)

// queue is a budget, and who was granted memory, in order.
type queue struct {
	*Memory
	t *testing.T

	mu      sync.Mutex
	most    int64 // that was held at any time
	waiting int
	granted []string
}

func newQueue(t *testing.T, total int64) *queue {
	q := &queue{t: t}
	q.Memory = NewMemory(total, func(held int64, waiting int) {
		q.mu.Lock()
		defer q.mu.Unlock()
		q.most, q.waiting = max(q.most, held), waiting
	})
	return q
}

// take begins to wait for n bytes, and returns what it gets. It must be called in a bubble.
func (q *queue) take(ctx context.Context, namespace string, n int64) <-chan *Share {
	got := make(chan *Share, 1)
	go func() {
		s, err := q.Take(ctx, namespace, n, func() {})
		if err != nil && ctx.Err() == nil {
			q.t.Error(err)
		}
		q.mu.Lock()
		q.granted = append(q.granted, namespace)
		q.mu.Unlock()
		got <- s
	}()
	synctest.Wait()
	return got
}

// isIdle checks that nothing is held and nobody waits.
func (q *queue) isIdle() {
	q.t.Helper()
	if q.taken != 0 || len(q.held) != 0 || len(q.Memory.waiting) != 0 {
		q.t.Errorf("%d bytes are held (%v), %d wait", q.taken, q.held, len(q.Memory.waiting))
	}
}

// TestHostileNamespaceFillsMemory: a hundred checkpoints of one namespace wait, and that of another one that comes last
// is the next.
func TestHostileNamespaceFillsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 4)
		var hostile []<-chan *Share
		for range 104 {
			hostile = append(hostile, q.take(t.Context(), "hostile", 1))
		}
		if q.waiting != 100 {
			t.Fatalf("%d wait", q.waiting)
		}
		victim := q.take(t.Context(), "victim", 2)
		for i := range 2 {
			select {
			case <-victim:
				t.Fatal("there is no room yet")
			default:
			}
			(<-hostile[i]).Return()
			synctest.Wait()
		}
		select {
		case s := <-victim:
			s.Return()
		default:
			t.Error("the other namespace waits behind the hostile one")
		}
		for _, h := range hostile[2:] {
			(<-h).Return()
		}
		if q.most > 4 {
			t.Errorf("%d bytes were held", q.most)
		}
		q.isIdle()
	})
}

// TestHostileNamespaceInTurn: the same holds if there is room for one checkpoint alone, so that nobody holds anything
// when it is given away. Namespaces take turns.
func TestHostileNamespaceInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 4)
		var all []<-chan *Share
		for range 100 {
			all = append(all, q.take(t.Context(), "hostile", 3))
		}
		for range 2 {
			all = append(all, q.take(t.Context(), "victim", 3))
		}
		for len(q.granted) < 5 {
			for i, one := range all {
				select {
				case s := <-one:
					s.Return()
					all = slices.Delete(all, i, i+1)
				default:
					continue
				}
				break
			}
			synctest.Wait()
		}
		if want := []string{"hostile", "victim", "hostile", "victim", "hostile"}; !slices.Equal(q.granted, want) {
			t.Errorf("granted %v", q.granted)
		}
		for len(all) > 0 {
			for _, one := range all {
				go func() { (<-one).Return() }()
			}
			all = nil
		}
		synctest.Wait()
		q.isIdle()
	})
}

// TestLargeOneDoesNotStarve: small claims that come later do not overtake a large one, of the same namespace or others.
func TestLargeOneDoesNotStarve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 4)
		first := <-q.take(t.Context(), "a", 1)
		large := q.take(t.Context(), "large", 4)
		small := q.take(t.Context(), "b", 1)
		again := q.take(t.Context(), "a", 1)
		first.Return()
		synctest.Wait()
		if got := q.granted; !slices.Equal(got, []string{"a", "large"}) {
			t.Errorf("granted %v", got)
		}
		(<-large).Return()
		(<-small).Return()
		(<-again).Return()
		q.isIdle()
	})
}

// TestWaitEnds: a claim whose request ends waits no longer, and no longer stands in the way of others.
func TestWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 4)
		first := <-q.take(t.Context(), "a", 2)
		ctx, cancel := context.WithCancelCause(t.Context())
		large := q.take(ctx, "b", 3)
		small := q.take(t.Context(), "c", 2)
		over := errors.New("over")
		go func() {
			_, err := q.Take(ctx, "b", 3, func() {})
			if !errors.Is(err, over) || !errors.Is(err, errkind.ErrBudget) || Refused(err) != "memory" ||
				!strings.Contains(err.Error(), "--checkpoint-memory") {
				t.Errorf("%v", err)
			}
		}()
		synctest.Wait()
		cancel(over)
		if s := <-large; s != nil {
			t.Error("it got its share")
		}
		(<-small).Return()
		first.Return()
		synctest.Wait()
		q.isIdle()
	})
}

// TestHostileLargerThanMemory: what can never fit is refused at once, with the figures and the argument.
func TestHostileLargerThanMemory(t *testing.T) {
	q := newQueue(t, 3<<30)
	_, err := q.Take(t.Context(), "a", 3<<30+1, func() { t.Error("it waits") })
	for _, want := range []string{"3073 MiB", "3072 MiB", "--checkpoint-memory"} {
		if !errors.Is(err, errkind.ErrBudget) || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	q.isIdle()
}

// TestGrow: a share grows while there is room, whoever waits.
func TestGrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 4)
		s := <-q.take(t.Context(), "a", 2)
		other := q.take(t.Context(), "b", 3)
		if err := s.Grow(2); err != nil {
			t.Error(err)
		}
		if err := s.Grow(1); !errors.Is(err, errkind.ErrBudget) {
			t.Errorf("%v", err)
		}
		s.Return()
		s.Return()
		(<-other).Return()
		(*Share)(nil).Return()
		q.isIdle()
	})
}

// TestMemoryAtRandom: whatever comes, the budget is never exceeded, and everybody gets what he waits for.
func TestMemoryAtRandom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 100)
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				for range 50 {
					ctx, cancel := context.WithCancel(t.Context())
					if rand.IntN(4) == 0 {
						go cancel()
					}
					s, err := q.Take(ctx, string(rune('a'+rand.IntN(5))), rand.Int64N(101), func() {})
					if err == nil {
						_ = s.Grow(rand.Int64N(10))
					}
					s.Return()
					cancel()
				}
			})
		}
		wg.Wait()
		if q.most > 100 {
			t.Errorf("%d bytes were held", q.most)
		}
		q.isIdle()
	})
}
