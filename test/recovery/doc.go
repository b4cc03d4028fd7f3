// Package recovery kills processes that use a store, at every failpoint and at random instants, and
// checks what they leave: every snapshot that is listed is whole, none that was there before has
// changed, and a sweep brings the store to exactly what the manifests name.
package recovery
