package admission

import "fmt"

// reason returns what a wake waits for. The caller holds the Queue's lock.
func (x *waiter) reason() string {
	if x.behind > 0 {
		return fmt.Sprintf("it needs %d MiB of memory, and waits for its turn after %d other pods", x.need>>20, x.behind)
	}
	return fmt.Sprintf("it needs %d MiB of memory, and the node has %d MiB to spare", x.need>>20, max(x.spare, 0)>>20)
}

// Waiting returns how many wakes wait.
func (q *Queue) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiting)
}

// Reason returns what the wake of the pod with this UID waits for. ok is false if it does not wait.
func (q *Queue) Reason(uid string) (why string, ok bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, x := range q.waiting {
		if x.pod.UID == uid {
			return x.reason(), true
		}
	}
	return "", false
}

// Reasons returns what wakes wait for, by the ids of their sandboxes.
func (q *Queue) Reasons() map[string]string {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := make(map[string]string)
	for _, x := range q.waiting {
		all[x.sandbox] = x.reason()
	}
	return all
}
