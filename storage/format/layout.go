package format

import (
	"encoding/hex"
	"fmt"
	"strings"

	"diapause.dev/api/snapshot"
)

// Key names a snapshot.
type Key = snapshot.Key

// PackID names a pack: 128 random bits.
type PackID [16]byte

// String returns the id in hex, as it stands in the pack's object name.
func (id PackID) String() string { return hex.EncodeToString(id[:]) }

// KeyID names a namespace key or a data key, and reveals nothing about it.
type KeyID [16]byte

// String returns the id in hex, as it stands in the object name of a data key.
func (id KeyID) String() string { return hex.EncodeToString(id[:]) }

// Marker is the object that makes a place a store.
const Marker = "diapause.json"

// CheckKey refuses keys whose objects could be mistaken for others.
func CheckKey(key Key) error {
	if err := key.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidName, err)
	}
	return CheckNamespace(key.Namespace)
}

// CheckNamespace refuses names that cannot be those of a namespace.
func CheckNamespace(namespace string) error {
	if !snapshot.ValidName(namespace) || namespace == Marker {
		return fmt.Errorf("%w: namespace %.80q", ErrInvalidName, namespace)
	}
	return nil
}

// PackDir returns what the names of a namespace's packs begin with.
func PackDir(namespace string) string { return namespace + "/packs/" }

// PackName returns the name of the object that holds a pack.
func PackName(namespace string, id PackID) string { return PackDir(namespace) + id.String() }

// SnapshotsDir returns what the names of all objects of a namespace's snapshots begin with.
func SnapshotsDir(namespace string) string { return namespace + "/snapshots/" }

// SnapshotDir returns what the names of a snapshot's manifest and of the objects beside it begin with.
func SnapshotDir(key Key) string { return SnapshotsDir(key.Namespace) + key.Name + "/" }

// ManifestName returns the name of the object that makes a snapshot exist.
func ManifestName(key Key) string { return SnapshotDir(key) + "manifest" }

// WorkingSetName returns the name of the object that holds a snapshot's working set.
func WorkingSetName(key Key) string { return SnapshotDir(key) + "workingset" }

// KeysDir returns what the names of a namespace's data keys begin with.
func KeysDir(namespace string) string { return namespace + "/keys/" }

// KeyName returns the name of the object that holds a data key.
func KeyName(namespace string, id KeyID) string { return KeysDir(namespace) + id.String() }

// ParseManifestName is the inverse of ManifestName.
func ParseManifestName(object string) (Key, bool) {
	parts := strings.Split(object, "/")
	if len(parts) != 4 || parts[1] != "snapshots" || parts[3] != "manifest" {
		return Key{}, false
	}
	key := Key{Namespace: parts[0], Name: parts[2]}
	return key, CheckKey(key) == nil
}

// ParsePackName reports whether an object of a namespace is a pack.
func ParsePackName(namespace, object string) (PackID, bool) {
	var id PackID
	s, ok := strings.CutPrefix(object, PackDir(namespace))
	if !ok || len(s) != hex.EncodedLen(len(id)) {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(s))
	return id, err == nil && id.String() == s
}

// ParseKeyName reports whether an object of a namespace is a data key, and returns the key's id.
func ParseKeyName(namespace, object string) (id KeyID, ok bool) {
	s, ok := strings.CutPrefix(object, KeysDir(namespace))
	if !ok || len(s) != hex.EncodedLen(len(id)) {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(s))
	return id, err == nil && id.String() == s
}

// NamespaceOf returns the first component of an object's name, if it can be a namespace.
func NamespaceOf(object string) (string, bool) {
	for i, c := range []byte(object) {
		if c == '/' {
			ns := object[:i]
			return ns, snapshot.ValidName(ns) && ns != Marker
		}
	}
	return "", false
}
