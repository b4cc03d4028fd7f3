package format

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"fmt"

	"github.com/zeebo/blake3"
)

// Secret is a key of 256 bits.
type Secret [32]byte

// String hides the key.
func (Secret) String() string { return "secret" }

// GoString hides the key.
func (Secret) GoString() string { return "secret" }

// Each use of a key has its own key, derived under one of these contexts.
const (
	useKeyID    = "diapause.dev store 1: id of a namespace key"
	useDataID   = "diapause.dev store 1: id of a data key"
	useWrap     = "diapause.dev store 1: wrap data keys"
	useManifest = "diapause.dev store 1: manifest"
	usePack     = "diapause.dev store 1: pack"
	useSet      = "diapause.dev store 1: working set"
)

func derive(use string, key Secret, material []byte) (out Secret) {
	blake3.DeriveKey(use, append(key[:], material...), out[:])
	return out
}

// KeyIDOf returns the id of a namespace key.
func KeyIDOf(key Secret) KeyID { return idOf(useKeyID, key) }

func idOf(use string, key Secret) KeyID {
	d := derive(use, key, nil)
	return KeyID(d[:16])
}

func newAEAD(key Secret) cipher.AEAD {
	block, err := aes.NewCipher(key[:])
	if err == nil {
		var a cipher.AEAD
		if a, err = cipher.NewGCM(block); err == nil {
			return a
		}
	}
	panic(err) // the key has the right length
}

// SealSize is how many bytes encryption adds to a chunk, or to a section.
const SealSize = 16

// DataKey is a data key: it encrypts the manifests and packs of a lineage.
type DataKey struct {
	id  KeyID
	key Secret
}

// NewDataKey returns a random data key.
func NewDataKey() *DataKey {
	l := &DataKey{}
	_, _ = rand.Read(l.key[:]) // never fails
	l.id = idOf(useDataID, l.key)
	return l
}

// ID returns the data key's id, which is derived from it.
func (l *DataKey) ID() KeyID { return l.id }

// A data key's object: magic, the id of the namespace key that wraps it, a nonce, and the wrapped
// key.
const (
	wrappedMagic = "DIAPKEY\x01"
	// WrappedSize is the length of a data key's object, in bytes.
	WrappedSize = len(wrappedMagic) + 16 + 12 + len(Secret{}) + SealSize
)

// Wrap returns a data key's object. The object's name is authenticated with it.
func (l *DataKey) Wrap(namespace string, by Secret) []byte {
	id := idOf(useKeyID, by)
	b := append([]byte(wrappedMagic), id[:]...)
	nonce := make([]byte, 12)
	_, _ = rand.Read(nonce) // never fails
	b = append(b, nonce...)
	return newAEAD(derive(useWrap, by, nil)).Seal(b, nonce, l.key[:], []byte(KeyName(namespace, l.id)))
}

// UnwrapDataKey reads a data key's object. It also returns the id of the key that wraps it.
func UnwrapDataKey(namespace string, id KeyID, object []byte, keys []Secret) (*DataKey, KeyID, error) {
	name := KeyName(namespace, id)
	if len(object) != WrappedSize || string(object[:len(wrappedMagic)]) != wrappedMagic {
		return nil, KeyID{}, &CorruptError{Object: name, Reason: "not a wrapped key"}
	}
	rest := object[len(wrappedMagic):]
	by, nonce, box := KeyID(rest[:16]), rest[16:28], rest[28:]
	for _, k := range keys {
		if idOf(useKeyID, k) != by {
			continue
		}
		raw, err := newAEAD(derive(useWrap, k, nil)).Open(nil, nonce, box, []byte(name))
		if err != nil {
			return nil, by, &CorruptError{Object: name, Reason: "wrapped key", Err: err}
		}
		l := &DataKey{id: id, key: Secret(raw)}
		if idOf(useDataID, l.key) != id {
			return nil, by, &CorruptError{Object: name, Reason: "another data key"}
		}
		return l, by, nil
	}
	return nil, by, fmt.Errorf("%w: the data key %s is wrapped by key %s, which is not among the %d known", ErrKey, id, by,
		len(keys))
}
