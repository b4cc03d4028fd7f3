package model

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"diapause.dev/storage"
)

// operation is one operation on its way. Each of its methods holds what the operation must, may and
// must not do.
type operation struct {
	*model
	rand    *rand.Rand
	process *process
	command command
	cell    *cell
	kill    time.Duration
	contest *contest // or nil
}

// contest is a snapshot that a rival removes meanwhile. Its cell is locked by whoever holds the contest.
type contest struct {
	state // before
	key   storage.Key
}

// contested does an operation while a rival removes another snapshot of its store and namespace, which is
// the parent of what is put. Now and then the rival is killed.
func (o *operation) contested(rival *process, do func() error) error {
	at := o.pick(o.rand)
	at.store, at.key.Namespace = o.command.Store, o.command.Key.Namespace
	c := o.cells[at]
	if c == o.cell || !c.TryLock() {
		return do()
	}
	defer c.Unlock()
	if c.id == 0 {
		return do()
	}
	o.contest = &contest{state: state{c.id, slices.Clone(c.content)}, key: at.key}
	r := &operation{
		model: o.model, process: rival, cell: c,
		command: command{Store: at.store, Key: at.key, Timeout: opTime, Grace: grace},
	}
	if o.rand.IntN(20) == 0 {
		r.kill = time.Duration(1 + o.rand.Int64N(int64(5*time.Millisecond)))
	}
	pause := time.Duration(o.rand.Int64N(int64(4 * time.Millisecond)))
	removed := make(chan error, 1)
	go func() {
		time.Sleep(pause)
		removed <- r.removeLocked()
	}()
	return errors.Join(do(), <-removed)
}

func (o *operation) place() place { return place{o.command.Store, o.command.Key} }

// calm reports whether nothing is made to fail.
func (o *operation) calm() bool { return o.command.Chaos.Rate == 0 && o.kill == 0 }

// do has the node do it.
func (o *operation) do(op string) (answer, error) {
	o.command.Op = op
	a, err := o.process.do(o.command, o.kill)
	o.history.add(o, a, err)
	o.count.add(o, a, err)
	if errors.Is(err, errKilled) {
		return answer{Error: err.Error()}, nil
	}
	if err == nil && a.WrongByte != "" {
		err = fmt.Errorf("%s: %s", o, a.WrongByte)
	}
	return a, err
}

func (o *operation) String() string {
	c := o.command
	return fmt.Sprintf("%s %d:%s", c.Op, c.Store, c.Key)
}

// wrong is the error of an answer that must not be.
func (o *operation) wrong(a answer, why string) error {
	return fmt.Errorf("%s (faults: %v, killed: %v): %s: %+v", o, o.command.Chaos, o.kill > 0, why, a)
}

// failed checks an error: if nothing was made to fail, it must be one that is expected.
func (o *operation) failed(a answer, expected bool) error {
	if o.calm() && !expected && !strings.Contains(a.Error, "deadline exceeded") {
		return o.wrong(a, "failed, and should not have")
	}
	return nil
}

// settle finds out which of several states a place is in after an operation that failed. It is
// called with the cell locked.
func (o *operation) settle(possible ...state) error {
	var errs []error
	for _, s := range possible {
		err := o.matches(o.t.Context(), o.place(), s)
		if err == nil {
			o.cell.state = s
			return nil
		}
		errs = append(errs, err)
	}
	return fmt.Errorf("%s (faults: %v, killed: %v) left a state that is not possible: %w", o, o.command.Chaos, o.kill > 0,
		errors.Join(errs...))
}

// put makes a snapshot, often with a parent, which may be removed meanwhile.
func (o *operation) put() error {
	if !o.cell.TryLock() {
		return nil
	}
	defer o.cell.Unlock()
	parent, pinned := o.chooseParent()
	defer pinned()
	next := state{id: o.ids.Add(1), content: o.content(parent)}
	o.command.Content, o.command.UID = next.content, fmt.Sprint(next.id)
	before := o.cell.state
	a, err := o.do(opPut)
	switch {
	case err != nil:
		return err
	case a.Error == "" && before.id != 0:
		return o.wrong(a, "made a snapshot that exists")
	case a.Error == "":
		o.cell.state = next
		return nil
	case a.Exists && before.id == 0:
		return o.wrong(a, "exists, it says")
	}
	lostParent := (a.NotFound || o.contest != nil) && o.command.Parent != ""
	if err := o.failed(a, before.id != 0 && a.Exists || lostParent); err != nil {
		return err
	}
	if before.id != 0 {
		return o.settle(before)
	}
	return o.settle(before, next)
}

// chooseParent names a parent in the command and returns its content. Half of the parents are kept
// from being removed until the function is called.
func (o *operation) chooseParent() (content []uint64, unpin func()) {
	if o.contest != nil {
		o.command.Parent = o.contest.key.Name
		return o.contest.content, func() {}
	}
	at := o.pick(o.rand)
	at.store, at.key.Namespace = o.command.Store, o.command.Key.Namespace
	c := o.cells[at]
	if o.rand.IntN(4) == 0 || c == o.cell || !c.TryRLock() {
		return nil, func() {}
	}
	if c.id == 0 {
		c.RUnlock()
		return nil, func() {}
	}
	o.command.Parent = at.key.Name
	content = slices.Clone(c.content)
	if o.rand.IntN(2) == 0 {
		c.RUnlock()
		return content, func() {}
	}
	return content, c.RUnlock
}

// content is that of a parent with some chunks changed, or a new one.
func (o *operation) content(parent []uint64) []uint64 {
	for range 1 + o.rand.IntN(4) {
		if len(parent) > 0 && o.rand.IntN(2) == 0 {
			parent[o.rand.IntN(len(parent))] = o.rand.Uint64N(1 << 40)
		} else if len(parent) < 12 {
			parent = append(parent, o.rand.Uint64N(1<<40), 0)
		}
	}
	return parent
}

// read restores or verifies.
func (o *operation) read(op string) error {
	if !o.cell.TryRLock() {
		return nil
	}
	defer o.cell.RUnlock()
	o.command.Content = o.cell.content
	a, err := o.do(op)
	switch {
	case err != nil:
		return err
	case a.Error == "" && o.cell.id == 0:
		return o.wrong(a, "there is no such snapshot")
	case a.NotFound && o.cell.id != 0:
		return o.wrong(a, "not found, it says")
	case a.Error != "":
		return o.failed(a, o.cell.id == 0 && a.NotFound)
	}
	return nil
}

func (o *operation) remove() error {
	if !o.cell.TryLock() {
		return nil
	}
	defer o.cell.Unlock()
	return o.removeLocked()
}

// removeLocked is remove with the cell locked.
func (o *operation) removeLocked() error {
	before := o.cell.state
	a, err := o.do(opRemove)
	switch {
	case err != nil:
		return err
	case a.Error == "" && before.id == 0:
		return o.wrong(a, "there is no such snapshot")
	case a.Error == "":
		return o.settle(state{})
	}
	if err := o.failed(a, before.id == 0 && a.NotFound); err != nil {
		return err
	}
	return o.settle(before, state{})
}

// replicate copies a snapshot from the other store.
func (o *operation) replicate() error {
	o.command.From = (o.command.Store + 1) % stores
	source := o.cells[place{o.command.From, o.command.Key}]
	unlock, ok := lockBoth(o.cell, source)
	if !ok {
		return nil
	}
	defer unlock()
	before, next := o.cell.state, source.state
	a, err := o.do(opReplicate)
	switch {
	case err != nil:
		return err
	case a.Error == "" && (next.id == 0 || before.id != 0 && before.id != next.id):
		return o.wrong(a, "replicated what cannot be")
	case a.Error == "":
		o.cell.state = next
		return nil
	}
	impossible := next.id == 0 && a.NotFound || before.id != 0 && before.id != next.id && a.Exists
	if err := o.failed(a, impossible); err != nil {
		return err
	}
	if before.id != 0 || next.id == 0 {
		return o.settle(before)
	}
	return o.settle(before, next)
}

// lockBoth locks a cell, and another one shared.
func lockBoth(alone, shared *cell) (unlock func(), ok bool) {
	if !alone.TryLock() {
		return nil, false
	}
	if !shared.TryRLock() {
		alone.Unlock()
		return nil, false
	}
	return func() {
		shared.RUnlock()
		alone.Unlock()
	}, true
}

// sweep changes no snapshot, whatever happens to it.
func (o *operation) sweep() error {
	a, err := o.do(opSweep)
	if err != nil || a.Error == "" {
		return err
	}
	return o.failed(a, false)
}

// counts says what was done.
type counts struct {
	sync.Mutex
	all, failed, faults, killed, swept int
	by                                 map[string]int
}

func (c *counts) add(o *operation, a answer, err error) {
	c.Lock()
	defer c.Unlock()
	if c.by == nil {
		c.by = map[string]int{}
	}
	c.all++
	c.by[o.command.Op]++
	c.faults += a.Faults
	c.swept += a.Swept
	if a.Error != "" {
		c.failed++
	}
	if err != nil {
		c.killed++
	}
}

func (c *counts) String() string {
	return fmt.Sprintf("%d operations %v, of which %d failed; %d faults, %d nodes killed, %d packs swept", c.all, c.by,
		c.failed, c.faults, c.killed, c.swept)
}

// history keeps the last operations, for whoever has to find out what went wrong.
type history struct {
	mu    sync.Mutex
	lines []string
}

func (h *history) add(o *operation, a answer, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	line := fmt.Sprintf("%s %+v kill=%v: %+v %v", time.Now().Format("05.000000"), o.command, o.kill, a, err)
	if h.lines = append(h.lines, line); len(h.lines) > 60 {
		h.lines = h.lines[1:]
	}
}

func (h *history) String() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Join(h.lines, "\n")
}
