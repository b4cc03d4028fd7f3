package idle

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/traffic"
)

// counters are the counters of one pod, and its Meter.
type counters struct {
	mu      sync.Mutex
	usage   Usage
	ended   bool
	calls   []time.Duration // when it was found idle, since the beginning
	say     Verdict
	told    []string // what kept it awake
	senders []traffic.Count
	owes    bool // a client waits for an answer
	asked   []time.Duration
	began   time.Time
}

func (c *counters) Open(context.Context, snapshot.PodRef, []traffic.Ignored) (Gauge, error) {
	_, err := c.Read()
	return c, err
}

func (c *counters) Read() (Usage, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return Usage{}, errors.New("the sandbox has ended")
	}
	return c.usage, nil
}

func (c *counters) Busy() bool { return false }

func (c *counters) Memory() (int64, error) { return 1 << 20, nil }

func (c *counters) Owes(_ context.Context, within time.Duration) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, within)
	if c.owes {
		return true, nil
	}
	return false, errors.New("not known")
}

func (c *counters) Senders(context.Context) ([]traffic.Count, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.senders, nil
}

func (c *counters) idle(context.Context, snapshot.PodRef) Verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, time.Since(c.began))
	return c.say
}

func (c *counters) longAwake(_ snapshot.PodRef, u Use) {
	c.change(func(c *counters) { c.told = append(c.told, u.String()) })
}

func (c *counters) change(f func(*counters)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(c)
}

// called returns how often the pod was found idle so far.
func (c *counters) called() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls)
}

// expect fails the test unless the pod was found idle that often so far.
func (c *counters) expect(t *testing.T, want int) {
	t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.calls) != want {
		t.Errorf("found idle at %v, want %d times", c.calls, want)
	}
}

var someone = snapshot.PodRef{Namespace: "n", Name: "p", UID: "u"}

// watch runs a Watcher of a pod that is idle after ten seconds.
func watch(t *testing.T, say Verdict, f func(*Watcher, *counters)) {
	synctest.Test(t, func(t *testing.T) {
		c := &counters{say: say, began: time.Now()}
		w := NewWatcher(Config{Meter: c, Idle: c.idle, LongAwake: c.longAwake, Logger: slog.New(slog.DiscardHandler)})
		w.Watch(someone, tenSeconds, false)
		ctx, cancel := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { w.Run(ctx) })
		f(w, c)
		cancel()
		run.Wait()
	})
}

var tenSeconds = Rule{After: 10 * time.Second, CPU: 1}

// TestOwes: a pod that a client waits for is in use, as far as is known.
func TestOwes(t *testing.T) {
	watch(t, Verdict{}, func(w *Watcher, c *counters) {
		c.change(func(c *counters) { c.owes = true })
		rule := tenSeconds
		rule.AnswerWithin = time.Minute
		w.Watch(someone, rule, false)
		time.Sleep(35 * time.Second) // at 11, 21 and 31 s
		c.expect(t, 0)
		c.change(func(c *counters) {
			if !slices.Equal(c.asked, slices.Repeat([]time.Duration{time.Minute}, 3)) {
				t.Errorf("asked %v", c.asked)
			}
			c.owes = false
		})
		time.Sleep(10 * time.Second)
		c.expect(t, 1)
	})
}

// TestIdleOnce: a pod is found idle once, and again only when it was used.
func TestIdleOnce(t *testing.T) {
	watch(t, Verdict{}, func(_ *Watcher, c *counters) {
		time.Sleep(time.Minute)
		c.expect(t, 1)
		c.change(func(c *counters) { c.usage.Received += 50 })
		time.Sleep(time.Minute)
		c.expect(t, 2)
	})
}

func TestIdleAgain(t *testing.T) {
	watch(t, Verdict{Pause: 30 * time.Second}, func(_ *Watcher, c *counters) {
		time.Sleep(80 * time.Second) // at 11, 41 and 71 s
		c.expect(t, 3)
	})
}

// TestUsedAfterAll: what proved to be used must be idle for the whole time again.
func TestUsedAfterAll(t *testing.T) {
	watch(t, Verdict{Used: true}, func(_ *Watcher, c *counters) {
		time.Sleep(15 * time.Second)
		c.expect(t, 1)
		time.Sleep(10 * time.Second)
		c.expect(t, 2)
	})
}

// TestAsleep: a pod that sleeps is not looked at. When it is awake again, its time begins anew, whatever came before.
func TestAsleep(t *testing.T) {
	watch(t, Verdict{}, func(w *Watcher, c *counters) {
		time.Sleep(15 * time.Second)
		c.expect(t, 1)
		w.Watch(someone, tenSeconds, true)
		c.change(func(c *counters) { c.ended = true })
		time.Sleep(time.Minute)
		c.change(func(c *counters) { c.ended = false })
		w.Watch(someone, tenSeconds, false)
		time.Sleep(9 * time.Second)
		c.expect(t, 1)
		time.Sleep(5 * time.Second)
		c.expect(t, 2)
	})
}

// TestGaugeLost: a sandbox that has ended is looked for again.
func TestGaugeLost(t *testing.T) {
	watch(t, Verdict{}, func(_ *Watcher, c *counters) {
		time.Sleep(5 * time.Second)
		c.change(func(c *counters) { c.ended = true })
		time.Sleep(time.Minute)
		c.expect(t, 0)
		c.change(func(c *counters) { c.ended = false })
		time.Sleep(25 * time.Second)
		c.expect(t, 1)
	})
}

// TestSession: a pod is used while a session is open, even if nothing moves, and its time begins anew at the end.
func TestSession(t *testing.T) {
	watch(t, Verdict{}, func(_ *Watcher, c *counters) {
		for range 120 {
			c.change(func(c *counters) { c.usage.Session = time.Now() })
			time.Sleep(500 * time.Millisecond)
		}
		c.expect(t, 0)
		time.Sleep(8 * time.Second)
		c.expect(t, 0)
		time.Sleep(4 * time.Second)
		c.expect(t, 1)
	})
}

// slowFor is a Meter that finds one pod at once. It waits for the shims of the others.
type slowFor struct{ *counters }

func (s slowFor) Open(ctx context.Context, pod snapshot.PodRef, ignored []traffic.Ignored) (Gauge, error) {
	if pod != someone {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return s.counters.Open(ctx, pod, ignored)
}

// TestSlowShims: pods whose shims do not answer keep no other pod awake.
func TestSlowShims(t *testing.T) {
	watch(t, Verdict{Asleep: true}, func(w *Watcher, c *counters) {
		w.Meter = slowFor{c}
		for i := range 10 {
			w.Watch(snapshot.PodRef{Namespace: "n", Name: "slow", UID: fmt.Sprint(i)}, tenSeconds, false)
		}
		time.Sleep(20 * time.Second)
		c.expect(t, 1)
	})
}

func TestForget(t *testing.T) {
	watch(t, Verdict{}, func(w *Watcher, c *counters) {
		time.Sleep(5 * time.Second)
		w.Forget(someone.UID)
		time.Sleep(time.Minute)
		c.expect(t, 0)
	})
}

// TestEarly: a pod that nobody has used for a moment may be put to sleep before its time, but not within the time for
// which it stays awake, nor while it is used.
func TestEarly(t *testing.T) {
	watch(t, Verdict{Asleep: true}, func(w *Watcher, c *counters) {
		early := func(want bool) {
			t.Helper()
			before := c.called()
			if v, ok := w.Early(context.Background(), someone.UID); (ok && v.Asleep) != want {
				t.Errorf("put to sleep: %+v, %v, want %v", v, ok, want)
			}
			if called := c.called() > before; called != want {
				t.Errorf("found idle: %v, want %v", called, want)
			}
		}
		time.Sleep(1500 * time.Millisecond)
		if all := w.Spares(); len(all) > 0 {
			t.Errorf("at once: %v", all)
		}
		time.Sleep(2 * time.Second)
		if all := w.Spares(); len(all) != 1 || all[0].Pod != someone || all[0].Memory != 1<<20 {
			t.Errorf("idle: %v", all)
		}
		c.change(func(c *counters) { c.usage.Received += 50 })
		early(false) // it is looked at again
		time.Sleep(3 * time.Second)
		c.change(func(c *counters) { c.usage.Session = time.Now() })
		early(false)
		time.Sleep(3 * time.Second)
		early(true)
		if all := w.Spares(); len(all) > 0 {
			t.Errorf("once it was put to sleep: %v", all)
		}
	})
}

// TestEarlyMinAwake: the least time awake counts, and pods that nobody watches are not put to sleep.
func TestEarlyMinAwake(t *testing.T) {
	watch(t, Verdict{Asleep: true}, func(w *Watcher, c *counters) {
		patient := tenSeconds
		patient.MinAwake = 8 * time.Second
		w.Watch(someone, patient, false)
		time.Sleep(7 * time.Second)
		if _, ok := w.Early(context.Background(), someone.UID); ok || len(w.Spares()) > 0 {
			t.Error("it may be put to sleep before its least time awake")
		}
		time.Sleep(3 * time.Second)
		if len(w.Spares()) != 1 {
			t.Error("it may not be put to sleep")
		}
		if _, ok := w.Early(context.Background(), "another"); ok {
			t.Error("a pod is put to sleep that is not watched")
		}
		w.Watch(someone, patient, true)
		if _, ok := w.Early(context.Background(), someone.UID); ok || len(w.Spares()) > 0 {
			t.Error("a pod is put to sleep that sleeps")
		}
	})
}

// TestLongAwake: what keeps a pod awake for long is told once, and again when it was put to sleep meanwhile.
func TestLongAwake(t *testing.T) {
	for _, tt := range []struct {
		name string
		say  Verdict
		each func(*counters) // three times a minute
		want string
	}{
		{"packets", Verdict{}, func(c *counters) { c.usage.Received += 20 }, "60 packets a minute, and 6 are allowed"},
		{"packets of some", Verdict{}, func(c *counters) {
			c.usage.Received += 20
			c.senders = []traffic.Count{
				{Flow: traffic.Flow{Protocol: "TCP", From: netip.MustParseAddr("10.0.0.7"), Port: 8080}, Packets: 9},
				{Flow: traffic.Flow{Protocol: "ARP", From: netip.MustParseAddr("10.0.0.9")}, Packets: 1},
			}
		}, "of its probes: most are TCP to port 8080 from 10.0.0.7, ARP from 10.0.0.9"},
		{"processor time", Verdict{}, func(c *counters) { c.usage.CPU += 30 * time.Second }, "uses 1500 millicores"},
		{"sessions", Verdict{}, func(c *counters) { c.usage.Session = time.Now() }, "kubectl exec"},
		{"packets as it falls asleep", Verdict{Used: true}, func(*counters) {}, "about to sleep"},
		{"a process of a session", Verdict{InUse: true, Pause: time.Second}, func(*counters) {}, "kubectl exec"},
		{"no sandbox", Verdict{}, func(c *counters) { c.ended = true }, "whether anybody uses it: the sandbox has ended"},
		{"nothing", Verdict{}, func(*counters) {}, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			watch(t, tt.say, func(w *Watcher, c *counters) {
				w.Watch(someone, Rule{After: 50 * time.Second, CPU: 1, Packets: 6}, false)
				for range 25 {
					for range 60 / 20 { // no rest is long enough
						c.change(tt.each)
						time.Sleep(20 * time.Second)
					}
				}
				c.change(func(c *counters) {
					all := strings.Join(c.told, "\n")
					if (tt.want == "") != (all == "") || len(c.told) > 1 || !strings.Contains(all, tt.want) {
						t.Errorf("told %q, want %q", c.told, tt.want)
					}
				})
			})
		})
	}
}
