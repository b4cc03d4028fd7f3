package view

import (
	"fmt"
	"io"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/cmd/internal/table"
)

// KeyRotation is the result of "key rotate".
type KeyRotation struct {
	Stores []RotatedStore `json:"stores"` // the spool, then the store
}

// RotatedStore is what was done with the data keys in the spool or the store.
type RotatedStore struct {
	Location  string `json:"location"`
	Spool     bool   `json:"spool"`
	Keys      int64  `json:"keys"`
	Rewrapped int64  `json:"rewrapped"` // how many of these were wrapped by a key other than the current one
	Denied    int64  `json:"denied"`    // how many still are, because the agent may not replace them
}

// Add adds one result.
func (k *KeyRotation) Add(r *localv1.RotateKeysResult) {
	k.Stores = append(k.Stores, RotatedStore{r.GetLocation(), r.GetSpool(), r.GetKeys(), r.GetRewrapped(), r.GetDenied()})
}

// Table writes a row for each store.
func (k *KeyRotation) Table(w io.Writer) error {
	r := table.New(w)
	r.Add("LOCATION", "DATA KEYS", "REWRAPPED", "DENIED")
	denied := int64(0)
	for _, s := range k.Stores {
		r.Add(s.Location, fmt.Sprint(s.Keys), fmt.Sprint(s.Rewrapped), fmt.Sprint(s.Denied))
		denied += s.Denied
	}
	if err := r.Flush(); err != nil || denied == 0 {
		return err
	}
	_, err := fmt.Fprintf(w, "This agent may not replace %d data keys: run \"diapause-agent rotate-keys\" in the "+
		"controller's container.\n", denied)
	return err
}

// KeyCheck is the result of "key check".
type KeyCheck struct {
	Stores []CheckedStore `json:"stores"` // the spool, then the store
}

// CheckedStore says how many data keys in the spool or the store the configured keys can unwrap: all.
type CheckedStore struct {
	Location string `json:"location"`
	Spool    bool   `json:"spool"`
	Keys     int64  `json:"keys"`
	Former   int64  `json:"former"` // how many of these are wrapped by a key other than the current one
}

// Add adds one result.
func (k *KeyCheck) Add(r *localv1.RotateKeysResult) {
	k.Stores = append(k.Stores, CheckedStore{r.GetLocation(), r.GetSpool(), r.GetKeys(), r.GetRewrapped()})
}

// Table writes a row for each store.
func (k *KeyCheck) Table(w io.Writer) error {
	r := table.New(w)
	r.Add("LOCATION", "DATA KEYS", "FORMER KEY")
	for _, s := range k.Stores {
		r.Add(s.Location, fmt.Sprint(s.Keys), fmt.Sprint(s.Former))
	}
	return r.Flush()
}
