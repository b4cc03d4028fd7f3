package integration

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// TestSpoolFull checkpoints with a spool that has no room: for the packs, for what overflows the
// arena, and, one after the other, for every single file that a checkpoint makes.
func TestSpoolFull(t *testing.T) {
	at := newPlace(t)
	tmpfs(t, at.state, "size=6m")
	n := start(t, at.flags("--disk-floor=0")...) // which would refuse what has no room
	p := n.workload("full", "serve", "--mib", "32")
	before := n.serving(p)

	for _, arena := range []string{"--arena=1073741824", "--arena=1048576"} {
		n.restartAgent(at.flags(arena, "--disk-floor=0")...)
		for _, after := range []string{"--stop=false", "--stop"} {
			words := []string{"no space left", at.state}
			if arena == "--arena=1048576" {
				words = append(words, "overflow", "arena of 1048576 bytes")
			}
			n.refused(words, "checkpoint", after, "full")
			n.alive(p, before)
		}
	}
	n.resize(at.state, "size=512m")
	n.unharmed(p, before)
	n.settled(at)
	n.restartAgent(at.flags("--disk-floor=0")...)
	n.room(at, "full")
	n.alive(p, before)
	n.resize(at.state, "size=512m,nr_inodes=1m")
	n.unharmed(p, before)
	n.settled(at)
}

// room checkpoints a pod with room for no more file, one, two and so on, until that goes well.
func (n *node) room(at place, pod string) {
	n.Helper()
	const least, most = 5, 40
	for free := range uint64(most) {
		n.resize(at.state, fmt.Sprintf("size=512m,nr_inodes=%d", n.used(at)+free))
		_, err := n.cli("checkpoint", pod)
		if err == nil {
			if free < least {
				n.Errorf("a checkpoint with room for %d files succeeded", free)
			}
			return
		}
		if !strings.Contains(err.Error(), "no space left") {
			n.Errorf("room for %d files: %v", free, err)
		}
		n.unpaused(n.find(pod))
	}
	n.Errorf("no checkpoint with room for %d files", most)
}

// used returns how many files are on the tmpfs of the state.
func (n *node) used(at place) uint64 {
	n.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(at.state, &s); err != nil {
		n.Fatal(err)
	}
	return s.Files - s.Ffree
}

// TestStoreFull checkpoints with a store that has no room, and then gives it some.
func TestStoreFull(t *testing.T) {
	at := newPlace(t)
	tmpfs(t, at.store, "size=2m")
	at.makeStore(t)
	n := start(t, at.flags()...)
	p := n.workload("origin", "serve", "--mib", "16")
	before := n.serving(p)
	n.refused([]string{"default/kept", "this node only", "no space left"}, "checkpoint", "--name=kept", "origin")
	n.alive(p, before)
	if s := n.snapshot("kept"); !s.OnNode || s.Replicated {
		t.Errorf("snapshot %+v", s)
	}
	b := n.restore("kept", "--name=branch")[0]
	if st := n.serving(b); st.Boot != before.Boot {
		t.Errorf("branch is at %+v, the snapshot was at %+v", st, before)
	}
	n.verify(b)

	n.resize(at.store, "size=512m")
	n.settled(at) // by itself
	if s := n.snapshot("kept"); !s.Replicated {
		t.Errorf("snapshot %+v", s)
	}
	n.unharmed(p, before)
	n.settled(at)
}

// TestArenaOverflow captures more than the arena holds.
func TestArenaOverflow(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags("--arena=4194304")...)
	p := n.workload("large", "serve", "--mib", "32")
	before := n.serving(p)
	s := n.checkpoint("large")
	if s.Overflow <= 0 || s.Overflow < s.RawBytes-(4<<20)-(2<<20) {
		t.Errorf("snapshot %+v", s)
	}
	n.alive(p, before)
	b := n.restore(s.Name, "--name=branch")[0]
	if st := n.serving(b); st.Boot != before.Boot {
		t.Errorf("branch is at %+v, the snapshot was at %+v", st, before)
	}
	n.verify(b)
	n.restartAgent(at.flags("--arena=0")...)
	if s = n.checkpoint("large"); s.Overflow < 32<<20 {
		t.Errorf("snapshot without an arena: %+v", s)
	}
	n.verify(n.restore(s.Name, "--name=other")[0])
}
