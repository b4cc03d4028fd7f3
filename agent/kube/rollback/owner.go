package rollback

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
)

const (
	// signEvery is how often a controller leaves a sign of life in each store.
	signEvery = 5 * time.Minute
	// AliveTime is how old a sign of life is at least of a controller that has ended.
	AliveTime = 20 * time.Minute
	// MaxAhead is how far in the future a sign of life may be: the clocks of two clusters differ.
	MaxAhead = maxAhead
)

// ErrTaken is the kind of error if another cluster has taken over a cluster's snapshots in a store.
var ErrTaken = errors.New("another cluster has adopted this cluster's snapshots")

// sign is a controller's sign of life.
type sign struct {
	Time time.Time `json:"time"` // by its API server's clock
}

// taken says that a cluster has taken over another cluster's snapshots in a store.
type taken struct {
	By   string    `json:"by"` // id of the new cluster
	Time time.Time `json:"time"`
}

// Names of notes. Each has one writer: the old cluster's controller, and who adopts for the new one.
func signOf(cluster string) string  { return cluster + ".alive" }
func takenOf(cluster string) string { return cluster + ".taken" }

// Sign returns when the controller of a cluster has left its last sign of life in a store. It is zero if there is none.
func Sign(ctx context.Context, stores Notes, location, cluster string) (time.Time, error) {
	var s sign
	err := readNote(ctx, stores, location, signOf(cluster), &s)
	return s.Time, err
}

// TakenBy returns which cluster has taken over a cluster's snapshots in a store, or "".
func TakenBy(ctx context.Context, stores Notes, location, cluster string) (string, error) {
	var t taken
	err := readNote(ctx, stores, location, takenOf(cluster), &t)
	return t.By, err
}

// Take notes in a store that the cluster by has taken over a cluster's snapshots there.
func Take(ctx context.Context, stores Notes, location, cluster, by string, now time.Time) error {
	return writeNote(ctx, stores, location, takenOf(cluster), taken{By: by, Time: now})
}

func readNote(ctx context.Context, stores Notes, location, name string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	data, err := stores.Note(ctx, location, name)
	if err == nil && data != nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		return fmt.Errorf("note %.100q in store %s: %w", name, location, err)
	}
	return nil
}

func writeNote(ctx context.Context, stores Notes, location, name string, note any) error {
	ctx, cancel := context.WithTimeout(ctx, storeTime)
	defer cancel()
	data, err := json.Marshal(note)
	if err == nil {
		err = stores.SetNote(ctx, location, name, data)
	}
	if err != nil {
		return fmt.Errorf("note %.100q in store %s: %w", name, location, err)
	}
	return nil
}

// Owns returns nil if no other cluster has taken over this cluster's snapshots in the store at a location. Otherwise
// the error is of kind ErrTaken: nothing may be removed there.
func (k *Keeper) Owns(ctx context.Context, location string) error {
	cluster, err := k.Objects.IDs.Identity(ctx)
	if err != nil {
		return err
	}
	by, err := TakenBy(ctx, k.Stores, location, cluster)
	if err != nil || by == "" || by == cluster {
		return err
	}
	err = fmt.Errorf("store %s: %w: it is %.80q. Nothing is removed there: uninstall Diapause here, or give this cluster "+
		"another store", location, ErrTaken, by)
	if _, told := k.told.LoadOrStore(location, true); !told {
		k.tell(err)
	}
	return err
}
