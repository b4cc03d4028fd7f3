package integration

import (
	"errors"
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"diapause.dev/runsc/sleep"
	"diapause.dev/test/bed"
	"diapause.dev/test/workload/answers"
)

var readyKills = flag.Int("ready.kills", 3, "kills of each kind in TestReadyMakingKilled and TestReadyWakingKilled")

// victims are what is killed at random instants of a pod's becoming ready, and of its wake.
var victims = []string{"sandbox", "gofer", "sidecar", "restore", "agent", "containerd", "shim"}

// victimsOf say which processes of a pod that is ready, or wakes, are a victim.
var victimsOf = map[string]string{
	"sandbox": "runsc-sandbox", "gofer": "runsc-gofer", "sidecar": "runsc-checkpointgofer", "restore": " --go-fd=",
}

// killsOf runs a test of each of these victims: round is called for each kill, which is at an instant within spread.
func killsOf(t *testing.T, victims []string, spread time.Duration, round func(*killed)) {
	for _, victim := range victims {
		if !repaired() && (victim == "restore" || victim == "sidecar") { // they are there for milliseconds
			continue
		}
		t.Run(victim, func(t *testing.T) {
			at := newPlace(t)
			k := &killed{flags: append(at.flags(), readyFlag(1)), victim: victim}
			k.node = start(t, k.flags...)
			for i := range *readyKills {
				if k.p == nil {
					k.p = k.sleeper("killed", "--mib=8")
					k.before = k.serving(k.p)
				}
				k.after = time.Duration(rand.Int64N(int64(spread)))
				t.Logf("kill %d: %s after %v", i, victim, k.after)
				round(k)
			}
			k.settled(at)
			t.Logf("%d of %d pods ended", k.ended, *readyKills)
		})
	}
}

// killed is a pod of which something is killed.
type killed struct {
	*node
	flags  []string
	victim string
	after  time.Duration // when it is killed
	p      *bed.Pod      // nil: it has ended
	before answers.State
	ended  int // how many pods have
}

// kill kills the victim, after the time.
func (k *killed) kill() {
	k.Helper()
	time.Sleep(k.after)
	switch k.victim {
	case "agent":
		k.restartAgent(k.flags...)
	case "containerd":
		k.bed.Containerd.Kill()
		if err := k.bed.Containerd.Start(k.ctx); err != nil {
			k.Fatal(err)
		}
	case "shim":
		k.signal(k.shimOf(k.p.ID), syscall.SIGKILL)
	default:
		for _, pid := range k.processesOfReady(k.p) {
			if strings.Contains(commandOf(pid), victimsOf[k.victim]) {
				if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
					k.Fatal(err)
				}
			}
		}
	}
}

// goesOn fails unless the pod is what it was. One whose shim was killed has to have ended.
func (k *killed) goesOn() {
	k.Helper()
	if k.victim == "shim" {
		k.hasEnded()
		return
	}
	k.alive(k.p, k.before)
	k.logsOn(k.p)
}

// hasEnded waits until all containers of the pod have ended, and removes it.
func (k *killed) hasEnded() {
	k.Helper()
	for _, c := range k.p.Containers {
		k.eventually(c.Name+" ends", func() error {
			_, err := k.bed.ExitCode(k.ctx, c.ID)
			return err
		})
	}
	k.removed(k.p)
	k.ended++
	k.p = nil
}

// TestReadyMakingKilled kills what takes part while a pod is being made ready. It wakes all the same, and goes on.
func TestReadyMakingKilled(t *testing.T) {
	killsOf(t, victims, 200*time.Millisecond, func(k *killed) {
		k.asleep(k.p)
		made, c := make(chan error, 1), k.containerd()
		go func() {
			made <- c.OrderSleep(k.ctx, k.p.ID, sleep.Order{Verb: sleep.MakeReady, Load: true})
		}()
		k.kill()
		k.Logf("the order's answer: %v", <-made)
		k.goesOn()
	})
}

// TestReadyWakingKilled kills what takes part while a pod wakes that was ready. It wakes all the same, and goes on; or,
// if it was awake already, it ends as any pod would. A daemon's death ends no pod. The runsc that restores a container
// is left out: killed in the milliseconds between the restore and its note of that, it leaves a container that runs and
// that runsc takes for created, as gVisor's own start does.
func TestReadyWakingKilled(t *testing.T) {
	others := slices.DeleteFunc(slices.Clone(victims), func(v string) bool { return v == "restore" })
	killsOf(t, others, 120*time.Millisecond, func(k *killed) {
		k.asleep(k.p)
		k.ready(k.p)
		answered := k.asks(k.p)
		k.kill()
		if k.victim == "agent" || k.victim == "containerd" {
			if err := <-answered; err != nil {
				k.Error(err)
			}
			k.goesOn()
			return
		}
		if k.eventuallyEnds(answered) {
			k.hasEnded()
			return
		}
		k.goesOn()
	})
}

// eventuallyEnds waits until the pod has answered and runs on, or a container of it has ended, and reports which.
func (k *killed) eventuallyEnds(answered <-chan error) (ended bool) {
	k.Helper()
	k.eventually("it runs on, or has ended", func() error {
		for _, c := range k.p.Containers {
			if code, err := k.bed.ExitCode(k.ctx, c.ID); err == nil {
				k.Logf("%s has ended with %d", c.Name, code)
				ended = true
			}
		}
		if ended {
			return nil
		}
		select {
		case <-answered:
			answered = nil
		default:
		}
		if answered != nil {
			return errors.New("the request that woke it waits for an answer")
		}
		var now answers.State
		if err := k.getWithin(k.p, "/state", &now, 2*time.Second); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond) // a death just now shows by then
		return k.getWithin(k.p, "/state", &now, 2*time.Second)
	})
	return ended
}
