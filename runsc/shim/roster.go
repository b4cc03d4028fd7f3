package shim

import (
	"sync"

	task "github.com/containerd/containerd/api/runtime/task/v2"
	"golang.org/x/sys/unix"
)

// roster has what is known of the containers of a pod, from their creation until they are deleted. The zero value knows
// none. Its methods may be called concurrently. What is noted of another container is not kept.
type roster struct {
	mu  sync.Mutex
	all map[string]*member // by container id
}

// member is a container that is about to be created, or is there.
type member struct {
	name    string // in the pod
	waiting bool   // nothing has asked to start it
	leaving bool   // its end is watched, see watchKilled
	told    bool   // it was told to end
}

// add adds a container that is about to be created.
func (k *roster) add(id, name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.all == nil {
		k.all = make(map[string]*member)
	}
	k.all[id] = &member{name: name}
}

// of calls f with what is known of a container. If there is no such container, it reports false.
func (k *roster) of(id string, f func(*member)) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	m := k.all[id]
	if m != nil {
		f(m)
	}
	return m != nil
}

// name returns a container's name in its pod, or "" if it has none.
func (k *roster) name(id string) (name string) {
	k.of(id, func(m *member) { name = m.name })
	return name
}

// await notes that a container was created and waits for its start.
func (k *roster) await(id string) {
	k.of(id, func(m *member) { m.waiting = true })
}

// asked notes that a container is to start.
func (k *roster) asked(id string) {
	k.of(id, func(m *member) { m.waiting = false })
}

// awaited reports whether a container was created, and nothing has asked to start it.
func (k *roster) awaited(id string) (is bool) {
	k.of(id, func(m *member) { is = m.waiting })
	return is
}

// leave records that a container's end is watched, and reports whether it was not watched before.
func (k *roster) leave(id string) (first bool) {
	k.of(id, func(m *member) { first, m.leaving = !m.leaving, true })
	return first
}

// signalled records a signal to a container. It reports whether the signal is the first one that tells the container to
// end, and whether there is such a container.
func (k *roster) signalled(id string, s unix.Signal) (first, known bool) {
	known = k.of(id, func(m *member) {
		first = ends(s) && !m.told
		m.told = m.told || ends(s)
	})
	return first, known
}

// told reports whether a container was told to end.
func (k *roster) told(id string) (is bool) {
	k.of(id, func(m *member) { is = m.told })
	return is
}

// ending returns a container that was told to end and is not deleted yet, or "" if there is none. A snapshot of its
// sandbox would end again as soon as it is restored.
func (k *roster) ending() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, m := range k.all {
		if m.told {
			return id
		}
	}
	return ""
}

// forget forgets a container that was not created, or is deleted.
func (k *roster) forget(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.all, id)
}

// ends reports whether a signal tells a container to end.
func ends(s unix.Signal) bool {
	switch s {
	case 0, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH, unix.SIGCONT:
		return false
	}
	return true
}

// asksToEnd reports whether a signal tells a container to end, and leaves it time for that.
func asksToEnd(r *task.KillRequest) bool {
	s := unix.Signal(r.Signal)
	return r.ExecID == "" && ends(s) && s != unix.SIGKILL
}
