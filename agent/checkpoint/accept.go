package checkpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"diapause.dev/agent/errkind"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/keylock"
	"diapause.dev/agent/requests"
	"diapause.dev/agent/snapshots"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/storage"
)

// acceptance brings a request to its turn: it checks the request, names the snapshot, and learns all that must be known
// of the pod before anything is done to it.
type acceptance struct {
	runtime       Runtime
	control       *control
	journal       *journal.Journal
	changed       func(*journal.Record) // called with the request, once it is known
	sandboxes     *keylock.Locks        // one checkpoint at a time for each sandbox
	stores        *snapshots.Stores
	catalog       *snapshots.Catalog
	cluster       Cluster // or nil
	workloadSaves bool    // without a cluster: workloads may save their sandboxes
	watch         *stopwatch
	accepted
}

// accept resolves the target, journals the request, and waits for the sandbox's turn. If the request does not get its
// turn, or is refused then, accept removes it from the journal.
func (a *acceptance) accept(ctx context.Context) (release func(), err error) {
	pod, err := a.runtime.Find(ctx, a.o.Target)
	if err != nil {
		return nil, err
	}
	if err := pod.CheckRuntime(); err != nil {
		return nil, err
	}
	if err := a.enter(pod); err != nil {
		return nil, err
	}
	if release, err = a.turn(ctx); err != nil {
		return nil, a.refused(err)
	}
	if err = a.ready(ctx); err == nil {
		a.watch.lap("queue")
		err = a.begin()
	}
	if err != nil {
		release()
		return nil, a.refused(err)
	}
	return release, nil
}

// enter journals the request before the caller learns that it is accepted. If the agent dies while the request waits
// for its turn, the next agent ends it as failed.
func (a *acceptance) enter(pod *cri.Pod) error {
	encrypted, err := a.stores.Spool().Encrypts(pod.Namespace)
	if err != nil {
		return err
	}
	a.rec = &journal.Record{
		ID: requests.NewID(8), UID: snapshot.MakeUID(requests.NewID(16), encrypted),
		Pod: pod.String(), SandboxID: pod.ID, Stop: a.o.Stop, Stage: journal.StageAccepted, Created: time.Now(),
		PodUID: pod.UID, Key: snapshot.Key{Namespace: pod.Namespace, Name: a.o.Name},
		Completed: a.o.Completed, Ending: a.o.Ending, Scope: a.o.Scope, Sleep: a.o.Handover != nil,
		Purpose: a.o.purpose(),
	}
	a.rec.Passing = a.rec.Purpose == snapshot.ForSleep
	if err := a.nameEarly(pod.Name); err != nil {
		return err
	}
	if err := a.journal.Put(a.rec); err != nil {
		return err
	}
	if a.o.Accepted != nil {
		a.o.Accepted(a.rec.ID)
	}
	return nil
}

// begin journals what the cluster knows about the pod, and tells the cluster about the request.
func (a *acceptance) begin() error {
	was := a.journal.Get(a.rec.ID)
	if was == nil || was.Key != a.rec.Key || was.Store != a.rec.Store || was.Scope != a.rec.Scope {
		if err := a.journal.Put(a.rec); err != nil {
			return err
		}
	}
	a.changed(a.rec)
	return nil
}

// refused removes a request for which nothing was done: the caller gets err. The request must not stay in the journal,
// because the snapshot that it names may belong to another request.
func (a *acceptance) refused(err error) error {
	return errors.Join(err, a.journal.Drop(a.rec.ID))
}

// nameEarly names the snapshot when the request is accepted: it sets the requested name or makes one. But if the
// cluster or Options.Named makes the name, nameInTurn does it, so that names are in the order of the checkpoints.
func (a *acceptance) nameEarly(pod string) error {
	a.log = a.log.With("request", a.rec.ID, "pod", a.rec.Pod)
	if a.o.Name == "" && (a.o.Named != nil || a.cluster != nil) {
		return nil
	}
	return a.setName(cmp.Or(a.o.Name, snapshots.NewName(pod, a.rec.Created)))
}

// setName checks a name and writes it into the record. It is the common part of nameEarly and nameInTurn.
func (a *acceptance) setName(name string) error {
	a.rec.Key.Name = name
	a.log = a.log.With("snapshot", a.rec.Key.String())
	if err := a.rec.Key.Validate(); err != nil {
		return fmt.Errorf("%w: %w", errkind.ErrInvalid, err)
	}
	return nil
}

// nameInTurn names the snapshot when the sandbox's turn has come, if nameEarly has not.
func (a *acceptance) nameInTurn() error {
	switch {
	case a.rec.Named():
		return nil
	case a.o.Named == nil:
		return a.setName(a.cluster.Name())
	}
	name, err := a.o.Named()
	if err != nil {
		return err
	}
	return a.setName(name)
}

// turn waits for the sandbox's turn. A sandbox that has started a save by itself must not wait: if it is busy, turn
// fails.
func (a *acceptance) turn(ctx context.Context) (release func(), err error) {
	a.o.Progress("queue", 0, 0)
	if a.o.sentry == nil {
		return a.sandboxes.Lock(ctx, a.rec.SandboxID)
	}
	if release = a.sandboxes.TryLock(a.rec.SandboxID); release == nil {
		return nil, fmt.Errorf("pod %s: %w: it is being checkpointed", a.rec.Pod, errkind.ErrInvalid)
	}
	return release, nil
}

// ready reads the pod's state again when its turn has come, names the snapshot, and checks that the name is free.
func (a *acceptance) ready(ctx context.Context) (err error) {
	if a.pod, err = a.runtime.Get(ctx, a.rec.SandboxID); err != nil {
		return err
	}
	if err := a.seeAsleep(); err != nil {
		return err
	}
	if !a.pod.Ready || a.pod.SandboxPID == 0 {
		return fmt.Errorf("pod %s: %w", a.pod, cri.ErrNotRunning)
	}
	if err := a.nameInTurn(); err != nil {
		return err
	}
	if err := a.describe(ctx); err != nil {
		return err
	}
	taken, away, err := a.catalog.Exists(ctx, a.rec.Key, a.rec.Store)
	if err == nil && away != nil && a.o.Handover != nil {
		return fmt.Errorf("pod %s is not handed over, for its snapshot would be on this node only: %w", a.pod, away)
	}
	if err == nil && taken {
		err = fmt.Errorf("snapshot %s: %w: choose another name or remove it first", a.rec.Key, storage.ErrExists)
	}
	return err
}

// describe asks the cluster what it knows about the pod. Without a cluster, the operator decides whether workloads may
// save their sandboxes.
func (a *acceptance) describe(ctx context.Context) error {
	if a.cluster == nil {
		if a.o.sentry != nil && !a.workloadSaves {
			return fmt.Errorf("pod %s: %w: it may not save itself: start the agent with --workload-saves", a.pod,
				errkind.ErrNotAllowed)
		}
		return nil
	}
	ask := a.cluster.Describe
	if a.o.sentry != nil {
		ask = a.cluster.DescribeWorkload
	}
	d, err := ask(ctx, a.ref())
	if err != nil {
		return fmt.Errorf("pod %s: %w", a.pod, err)
	}
	if _, err := a.stores.At(d.Store); err != nil {
		return err
	}
	a.description, a.rec.Store, a.rec.NamespaceUID = d, d.Store, d.NamespaceUID
	a.rec.Inheritable = d.Inheritable && a.rec.Purpose == snapshot.ForSleep
	if a.o.Scope != snapshot.WholePod || a.o.Handover != nil { // a pod sleeps with its memory, whatever its snapshots keep
		return nil
	}
	if a.o.sentry != nil && d.Scope != snapshot.WholePod {
		return fmt.Errorf("pod %s: %w: it has itself saved as a whole, and its snapshots are to be %s", a.pod,
			errkind.ErrInvalid, d.Scope)
	}
	a.o.Scope, a.rec.Scope = d.Scope, d.Scope
	return nil
}

// ErrAsleep is the kind of error of a pod that is to be put to sleep, or to be ended, and sleeps.
var ErrAsleep = errors.New("it sleeps")

// seeAsleep notes whether the pod sleeps. It returns an error if a pod that sleeps cannot be what the request wants.
func (a *acceptance) seeAsleep() error {
	a.asleep = a.control.asleep(a.rec.SandboxID)
	if !a.asleep || a.o.Handover == nil && !a.o.Ending && a.o.sentry == nil {
		return nil
	}
	return fmt.Errorf("pod %s: %w: %w, and is saved already: wake it first", a.pod, cri.ErrNotRunning, ErrAsleep)
}
