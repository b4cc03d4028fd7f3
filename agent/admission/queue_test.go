package admission

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"diapause.dev/agent/lifetime"
	"diapause.dev/api/snapshot"
)

const mib = 1 << 20

// machine is a node with its cluster. A pod is named namespace/name, which is also its UID and its request.
type machine struct {
	*Queue

	mu       sync.Mutex
	free     int64 // bytes of memory
	unknown  error // why it is not known
	sizes    map[string]int64
	admitted map[string]int64 // bytes that they have not loaded
	idle     []Candidate
	slept    []string
	refuse   error // why no pod is put to sleep
	told     []string
	slow     time.Duration // how long it takes to find the pod of a request
	counts   map[string]int
	shims    sync.WaitGroup
}

// on runs f on a node with so much memory free. The reserve is 10 MiB.
func on(t *testing.T, free int64, f func(*testing.T, *machine)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		life := lifetime.New(t.Context())
		m := &machine{
			free: free + 10*mib, sizes: make(map[string]int64), admitted: make(map[string]int64),
			counts: make(map[string]int),
		}
		m.Queue = New(Config{
			Reserve: 10 * mib, Available: m.available, Restores: m, Cluster: m, Life: life, Metrics: m,
			Logger: slog.New(slog.DiscardHandler),
		})
		f(t, m)
		life.End(errors.New("the test is over"))
		life.Wait()
		m.shims.Wait()
	})
}

func (m *machine) available() (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.free, m.unknown
}

func (m *machine) Sleeper(_ context.Context, request string) (snapshot.PodRef, int64, error) {
	m.mu.Lock()
	slow := m.slow
	m.mu.Unlock()
	time.Sleep(slow)
	m.mu.Lock()
	defer m.mu.Unlock()
	n, ok := m.sizes[request]
	if !ok {
		return snapshot.PodRef{}, 0, errors.New("not known")
	}
	return podOf(request), n, nil
}

func podOf(request string) snapshot.PodRef {
	namespace, name, _ := strings.Cut(request, "/")
	return snapshot.PodRef{Namespace: namespace, Name: name, UID: request}
}

func (m *machine) Admit(request string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.admitted[request] = m.sizes[request]
}

func (m *machine) Admitted(request string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.admitted[request]
	return ok
}

func (m *machine) Unloaded() (n int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for bytes := range maps.Values(m.admitted) {
		n += bytes
	}
	return n
}

// load has all that were admitted take their memory.
func (m *machine) load() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for request, n := range m.admitted {
		m.free -= n
		m.admitted[request] = 0
	}
}

func (m *machine) give(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.free += bytes
}

func (m *machine) Waits(pod snapshot.PodRef) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.told = append(m.told, pod.UID)
}

func (m *machine) Idle() []Candidate {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.idle)
}

// PutToSleep takes half a second.
func (m *machine) PutToSleep(_ context.Context, pod snapshot.PodRef) error {
	time.Sleep(time.Second / 2)
	m.mu.Lock()
	defer m.mu.Unlock()
	i := slices.IndexFunc(m.idle, func(c Candidate) bool { return c.Pod == pod })
	if i < 0 || m.refuse != nil {
		return fmt.Errorf("%s: %w", pod.UID, m.refuse)
	}
	m.free += m.idle[i].Memory
	m.idle = slices.Delete(m.idle, i, i+1)
	m.slept = append(m.slept, pod.UID)
	return nil
}

func (m *machine) WakeAdmitted(waited time.Duration) { m.count("admitted", waited) }
func (m *machine) WakeGivenUp(waited time.Duration)  { m.count("given up", waited) }
func (m *machine) MadeRoom(err error)                { m.count(fmt.Sprint("made room: ", err == nil), 0) }

func (m *machine) count(what string, waited time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if waited > 0 {
		what += " later"
	}
	m.counts[what]++
}

// size sets how many bytes of memory a pod takes.
func (m *machine) size(request string, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sizes[request] = bytes
}

// wake has the shim of a pod ask until the pod may wake. The returned function ends the shim.
func (m *machine) wake(request string, bytes int64) (end func()) {
	m.size(request, bytes)
	ctx, end := context.WithCancel(m.Life.Context())
	began := time.Now()
	m.shims.Go(func() {
		for ctx.Err() == nil {
			w := Wake{Request: request, Sandbox: request, Room: math.MaxInt64, Waited: time.Since(began)}
			if ok, _ := m.Ask(ctx, w); ok {
				return
			}
		}
	})
	synctest.Wait()
	return end
}

// expect fails the test unless exactly these pods were woken, after so long.
func (m *machine) expect(t *testing.T, after time.Duration, want ...string) {
	t.Helper()
	time.Sleep(after)
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	got := slices.Sorted(maps.Keys(m.admitted))
	if slices.Sort(want); !slices.Equal(got, want) {
		t.Errorf("woken: %q, want %q", got, want)
	}
}

// seen returns which pods were put to sleep, of which the cluster was told, and what was counted.
func (m *machine) seen() (slept, told []string, counts map[string]int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.slept), slices.Clone(m.told), maps.Clone(m.counts)
}

func (m *machine) idles(sizes ...int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, n := range sizes {
		m.idle = append(m.idle, Candidate{Pod: podOf(fmt.Sprintf("idle/%d", i)), Memory: n})
	}
}

// TestFits: what fits wakes at once. What was promised to those that still load is not given away twice.
func TestFits(t *testing.T) {
	on(t, 300*mib, func(t *testing.T, m *machine) {
		m.wake("n/a", 100*mib)
		m.wake("n/b", 150*mib)
		m.expect(t, 0, "n/a", "n/b")
		m.wake("n/c", 60*mib)
		m.expect(t, 0, "n/a", "n/b")
		m.load()
		m.expect(t, time.Minute, "n/a", "n/b")
		m.give(20 * mib)
		m.expect(t, time.Second, "n/a", "n/b", "n/c")
		if _, _, counts := m.seen(); counts["admitted"] != 2 || counts["admitted later"] != 1 {
			t.Errorf("counted %v", counts)
		}
	})
}

// TestWaits: a wake that waits is seen, and it says what it lacks. The cluster is told after a while, and at the end.
func TestWaits(t *testing.T) {
	on(t, 50*mib, func(t *testing.T, m *machine) {
		m.wake("n/a", 100*mib)
		if why, ok := m.Reason("n/a"); !ok || why != "it needs 100 MiB of memory, and the node has 50 MiB to spare" {
			t.Errorf("it waits: %v, %s", ok, why)
		}
		m.wake("n/b", 10*mib)
		if why := m.Reasons()["n/b"]; why != "it needs 10 MiB of memory, and waits for its turn after 1 other pods" {
			t.Errorf("it waits: %s", why)
		}
		if _, told, _ := m.seen(); m.Waiting() != 2 || len(told) > 0 {
			t.Errorf("%d wait, told of %q", m.Waiting(), told)
		}
		time.Sleep(2 * time.Second)
		m.give(100 * mib)
		m.expect(t, time.Second, "n/a", "n/b")
		_, told, _ := m.seen()
		if want := []string{"n/a", "n/b", "n/a", "n/b"}; !slices.Equal(told, want) || m.Waiting() > 0 {
			t.Errorf("told of %q, want %q", told, want)
		}
	})
}

// TestAdmittedMeanwhile: a wake that is admitted just as its shim asks again does not wait a second time.
func TestAdmittedMeanwhile(t *testing.T) {
	on(t, 50*mib, func(t *testing.T, m *machine) {
		end := m.wake("n/a", 100*mib)
		end()
		m.mu.Lock()
		m.slow = time.Second
		m.mu.Unlock()
		m.shims.Go(func() {
			if ok, why := m.Ask(t.Context(), Wake{Request: "n/a", Sandbox: "n/a", Room: math.MaxInt64}); !ok {
				t.Error("not admitted: " + why)
			}
		})
		m.give(100 * mib)
		m.expect(t, 5*time.Second, "n/a")
		if _, _, counts := m.seen(); counts["admitted later"] != 1 || len(counts) > 1 {
			t.Errorf("counted %v", counts)
		}
	})
}

// TestRoom: the limits of cgroups that pods share count, too.
func TestRoom(t *testing.T) {
	on(t, 500*mib, func(t *testing.T, m *machine) {
		m.size("n/a", 100*mib)
		ask := func(room int64) bool {
			ok, _ := m.Ask(t.Context(), Wake{Request: "n/a", Room: room})
			return ok
		}
		if ask(105*mib) || !ask(110*mib) {
			t.Error("want 100 MiB and the reserve to be free in the cgroup")
		}
	})
}

// TestInOrder: who came first is served first, though one that came later would fit. Another agent keeps the order.
func TestInOrder(t *testing.T) {
	on(t, 50*mib, func(t *testing.T, m *machine) {
		m.wake("a/large", 100*mib)
		m.wake("b/small", 20*mib)
		m.expect(t, patience-time.Second)
		m.size("c/first", 30*mib)
		m.shims.Go(func() {
			m.Ask(t.Context(), Wake{Request: "c/first", Room: math.MaxInt64, Waited: time.Hour})
		})
		m.expect(t, 0, "c/first")
		m.give(80 * mib)
		m.expect(t, lookEvery, "c/first", "a/large")
	})
}

// TestHostileHuge: wakes that never fit, however many, hold back those of other namespaces for a bounded time, and not
// again as long as one of them waits.
func TestHostileHuge(t *testing.T) {
	on(t, 50*mib, func(t *testing.T, m *machine) {
		for i := range 20 {
			m.wake(fmt.Sprint("evil/", i), 1<<50)
		}
		m.wake("good/a", 20*mib)
		m.expect(t, patience-time.Second)
		m.expect(t, 2*time.Second, "good/a")
		m.wake("evil/more", 1<<50)
		m.wake("good/b", 20*mib)
		m.expect(t, 0, "good/a", "good/b")
		m.give(1 << 50)
		m.expect(t, lookEvery, "evil/0", "good/a", "good/b")
	})
}

// TestHostileDeletes: a namespace that deletes its pod when its patience is over, and has another one wait at once,
// does not hold back others anew. It has its patience again after a while in which none of its wakes waits.
func TestHostileDeletes(t *testing.T) {
	on(t, 1000*mib, func(t *testing.T, m *machine) {
		end := m.wake("evil/0", 1<<50)
		m.wake("good/0", 20*mib)
		m.expect(t, patience-time.Second)
		m.expect(t, 2*time.Second, "good/0")
		want := []string{"good/0"}
		for i := 1; i < 7; i++ {
			end()
			time.Sleep(silence + time.Second) // its shim no longer asks: the pod is gone
			end = m.wake(fmt.Sprint("evil/", i), 1<<50)
			m.wake(fmt.Sprint("evil/small", i), 20*mib) // wakes at once, and takes nothing back
			want = append(want, fmt.Sprint("evil/small", i))
			good := fmt.Sprint("good/", i)
			m.wake(good, 20*mib)
			want = append(want, good)
			m.expect(t, time.Second, want...)
		}
		end()
		time.Sleep(silence + recovery*patience + time.Second)
		m.wake("evil/again", 1<<50)
		m.wake("good/again", 20*mib)
		m.expect(t, patience-time.Second, want...)
		m.expect(t, 2*time.Second, append(want, "good/again")...)
	})
}

// TestHostileEvicts: for a wake that would not fit even if all idle pods slept, none is put to sleep. Others still are.
func TestHostileEvicts(t *testing.T) {
	on(t, 50*mib, func(t *testing.T, m *machine) {
		m.idles(30*mib, 40*mib)
		m.wake("evil/a", 121*mib)
		m.expect(t, patience+time.Second)
		if slept, _, _ := m.seen(); len(slept) > 0 {
			t.Errorf("put to sleep: %q", slept)
		}
		m.wake("good/a", 70*mib)
		m.expect(t, 2*time.Second, "good/a")
		if slept, _, _ := m.seen(); !slices.Equal(slept, []string{"idle/0"}) {
			t.Errorf("put to sleep: %q", slept)
		}
	})
}

// TestMakesRoom: idle pods are put to sleep, the longest idle first, until the wake fits, and no more.
func TestMakesRoom(t *testing.T) {
	on(t, 10*mib, func(t *testing.T, m *machine) {
		m.idles(30*mib, 40*mib, 50*mib)
		m.wake("n/a", 80*mib)
		m.expect(t, 900*time.Millisecond)
		m.expect(t, 200*time.Millisecond, "n/a")
		time.Sleep(time.Minute)
		slept, _, counts := m.seen()
		if !slices.Equal(slept, []string{"idle/0", "idle/1"}) || counts["made room: true"] != 2 {
			t.Errorf("put to sleep: %q, counted %v", slept, counts)
		}
	})
}

// TestFailsToMakeRoom: a pod that does not fall asleep is left alone for a while, and the next one is tried.
func TestFailsToMakeRoom(t *testing.T) {
	on(t, 0, func(t *testing.T, m *machine) {
		m.idles(30*mib, 30*mib)
		m.refuse = errors.New("it is used")
		m.wake("n/a", 20*mib)
		m.expect(t, failedTime-time.Second)
		if _, _, counts := m.seen(); counts["made room: false"] != 2 {
			t.Errorf("counted %v", counts)
		}
		m.mu.Lock()
		m.refuse = nil
		m.mu.Unlock()
		m.expect(t, 4*time.Second, "n/a")
	})
}

// TestEnds: a pod that ends while it waits is forgotten, and holds back nobody.
func TestEnds(t *testing.T) {
	on(t, 50*mib, func(t *testing.T, m *machine) {
		end := m.wake("n/a", 100*mib)
		m.wake("n/b", 20*mib)
		m.expect(t, 0)
		end()
		m.expect(t, silence+time.Second, "n/b")
		if _, _, counts := m.seen(); counts["given up later"] != 1 || m.Waiting() != 0 {
			t.Errorf("counted %v, %d wait", counts, m.Waiting())
		}
		time.Sleep(recovery * patience)
		m.wake("other/c", mib)
		if len(m.holding) > 0 {
			t.Errorf("%v is still kept of namespaces", m.holding)
		}
	})
}

// TestUnknown: if it cannot be known what a wake takes, or what is free, nobody waits.
func TestUnknown(t *testing.T) {
	on(t, 0, func(t *testing.T, m *machine) {
		if ok, _ := m.Ask(t.Context(), Wake{Request: "n/unknown"}); !ok {
			t.Error("a wake waits that cannot be read")
		}
		m.mu.Lock()
		m.unknown = errors.New("no such file")
		m.mu.Unlock()
		m.wake("n/a", 100*mib)
		m.expect(t, 0, "n/a")
		m.Reserve = 0
		if ok, _ := m.Ask(t.Context(), Wake{Request: "n/b"}); !ok {
			t.Error("a wake waits without a reserve")
		}
	})
}
