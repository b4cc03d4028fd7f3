package storage

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

// marker is the object that makes a place a store.
const marker = "diapause.json"

// checkKey refuses keys whose objects could be mistaken for others.
func checkKey(key Key) error {
	if err := key.Validate(); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidName, err)
	}
	return checkNamespace(key.Namespace)
}

func checkNamespace(namespace string) error {
	if !snapshot.ValidName(namespace) || namespace == marker {
		return fmt.Errorf("%w: namespace %.80q", ErrInvalidName, namespace)
	}
	return nil
}

func packDir(namespace string) string { return namespace + "/packs/" }

func packName(namespace string, id PackID) string { return packDir(namespace) + id.String() }

func snapshotsDir(namespace string) string { return namespace + "/snapshots/" }

func snapshotDir(key Key) string { return snapshotsDir(key.Namespace) + key.Name + "/" }

func manifestName(key Key) string { return snapshotDir(key) + "manifest" }

// parseManifestName is the inverse of manifestName.
func parseManifestName(object string) (Key, bool) {
	parts := strings.Split(object, "/")
	if len(parts) != 4 || parts[1] != "snapshots" || parts[3] != "manifest" {
		return Key{}, false
	}
	key := Key{Namespace: parts[0], Name: parts[2]}
	return key, checkKey(key) == nil
}

// parsePackName reports whether an object of a namespace is a pack.
func parsePackName(namespace, object string) (PackID, bool) {
	var id PackID
	s, ok := strings.CutPrefix(object, packDir(namespace))
	if !ok || len(s) != hex.EncodedLen(len(id)) {
		return id, false
	}
	_, err := hex.Decode(id[:], []byte(s))
	return id, err == nil && id.String() == s
}
