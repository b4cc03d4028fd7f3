package lowpower

import (
	"math"
	"runtime"
	"runtime/debug"
	"testing"
)

// goSettings returns how the Go runtime is set.
func goSettings() [3]int64 {
	percent := debug.SetGCPercent(100)
	debug.SetGCPercent(percent)
	return [3]int64{int64(runtime.GOMAXPROCS(0)), int64(percent), debug.SetMemoryLimit(-1)}
}

// answers are whether answers are repeated.
type answers bool

func (a *answers) Repeat() { *a = true }
func (a *answers) Stop()   { *a = false }

// TestLowPower: a shim whose pod sleeps uses one processor, collects no garbage before there is some, and keeps
// answers. It is as before when the pod wakes. One whose pod is awake is not changed.
func TestLowPower(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	before := goSettings()
	asleep := false
	kept := new(answers)
	d := New(func() bool { return asleep }, kept)
	d.Enter()
	if bool(*kept) {
		t.Error("awake, it keeps answers")
	}
	if now := goSettings(); now != before {
		t.Errorf("awake, the runtime is set to %v, want %v", now, before)
	}
	asleep = true
	d.Enter()
	d.Enter() // changes nothing, and forgets nothing
	now := goSettings()
	if now[0] != 1 || now[1] != -1 || now[2] == math.MaxInt64 {
		t.Errorf("asleep, the runtime is set to %v, want one processor and a limit of memory alone", now)
	}
	if !bool(*kept) {
		t.Error("asleep, it keeps no answers")
	}
	if room := now[2] - goMemory(); room > 2*room { // some memory may have been given back since
		t.Errorf("memory grows by %d bytes before garbage is collected, want some %d", room, room)
	}
	asleep = false
	d.Leave()
	if bool(*kept) {
		t.Error("after waking, it keeps answers")
	}
	if now := goSettings(); now != before {
		t.Errorf("after waking, the runtime is set to %v, want %v", now, before)
	}
}
