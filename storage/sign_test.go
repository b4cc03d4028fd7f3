package storage_test

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"strings"
	"testing"

	"github.com/zeebo/blake3"

	"diapause.dev/storage"
	"diapause.dev/storage/signing"
	"diapause.dev/storage/storagetest"
)

// The layout of the end of a signed manifest: the section "sign", and the digest.
const (
	digestLength  = 32
	sectionLength = 4 + 8 + ed25519.PublicKeySize + ed25519.SignatureSize
)

// signer returns a key that depends on seed alone, and its public half.
func signer(seed uint64) (ed25519.PrivateKey, ed25519.PublicKey) {
	key := ed25519.NewKeyFromSeed(storagetest.Bytes(seed, ed25519.SeedSize))
	return key, key.Public().(ed25519.PublicKey)
}

// at opens the store at the place of s with other options.
func at(t *testing.T, s *storage.Store, o storage.Options) *storage.Store {
	t.Helper()
	again, err := storage.Open(t.Context(), s.Backend(), o)
	if err != nil {
		t.Fatal(err)
	}
	return again
}

func sealed(parts ...[]byte) []byte {
	body := bytes.Join(parts, nil)
	digest := blake3.Sum256(body)
	return append(body, digest[:]...)
}

// bySigning returns options without encryption, and with it.
func bySigning(t *testing.T) map[string]storage.Options {
	return map[string]storage.Options{"plain": {}, "encrypted": {Keyring: keyDir(t, "default", hexKey(1))}}
}

// TestSigned: a signed snapshot keeps its signature in a copy and is trusted there, and a parent that is trusted is
// shared with.
func TestSigned(t *testing.T) {
	private, public := signer(1)
	for what, o := range bySigning(t) {
		o.SigningKey, o.Trusted = private, []ed25519.PublicKey{public}
		spool, far := openDir(t, o), openDir(t, storage.Options{Keyring: o.Keyring, Trusted: o.Trusted})
		made := storagetest.Write(t, spool, key, nil, tinyImage())
		if made.SignedBy() != signing.Fingerprint(public) {
			t.Errorf("%s: made by %q", what, made.SignedBy())
		}
		if err := storage.Replicate(t.Context(), far, spool, key, nil); err != nil {
			t.Fatal(err)
		}
		m, err := far.TrustedManifest(t.Context(), key)
		if err != nil || !m.Signer.Equal(public) || m.Digest != made.Digest {
			t.Fatalf("%s: copy: %v", what, err)
		}
		storagetest.WantImage(t, m, tinyImage(), far)
		child := storagetest.Write(t, spool, storage.Key{Namespace: "ns", Name: "child"}, made, tinyImage())
		if child.DigestKey != made.DigestKey || child.Packs[0].ID != made.Packs[0].ID {
			t.Errorf("%s: nothing is shared with the parent", what)
		}
		for name, s := range map[string]*storage.Store{"spool": spool, "copy": far} {
			if err := s.Verify(t.Context(), m, storage.VerifyOptions{ReadData: true}); err != nil {
				t.Errorf("%s: %s: %v", what, name, err)
			}
		}
	}
}

// TestUnsignedWithoutTrust: a store without trusted keys takes everything, signed or not.
func TestUnsignedWithoutTrust(t *testing.T) {
	private, _ := signer(1)
	for name, o := range map[string]storage.Options{"unsigned": {}, "signed": {SigningKey: private}} {
		s := openDir(t, o)
		storagetest.Write(t, s, key, nil, tinyImage())
		m, err := at(t, s, storage.Options{}).TrustedManifest(t.Context(), key)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		storagetest.WantImage(t, m, tinyImage(), s)
	}
}

// TestKeysOfWrongLength: a key that would make the signature's functions panic is refused when the store is opened.
func TestKeysOfWrongLength(t *testing.T) {
	s := storagetest.NewDir(t)
	for _, o := range []storage.Options{
		{SigningKey: make([]byte, 10)},
		{Trusted: []ed25519.PublicKey{make([]byte, 31)}},
	} {
		if _, err := storage.Open(t.Context(), s.Backend(), o); err == nil {
			t.Errorf("opened with %+v", o)
		}
	}
}

// TestHostileUnsigned: whoever can write to the store replaces a signed snapshot by a valid one of his own. Nothing
// starts from it, and the error names the snapshot and who has signed it.
func TestHostileUnsigned(t *testing.T) {
	private, public := signer(1)
	forger, forgers := signer(2)
	trusted := []ed25519.PublicKey{public}
	for what, o := range bySigning(t) {
		for name, forged := range map[string]storage.Options{
			"not signed": {Keyring: o.Keyring},
			"signed by " + signing.Fingerprint(forgers): {Keyring: o.Keyring, SigningKey: forger},
		} {
			s := openDir(t, storage.Options{Keyring: o.Keyring, SigningKey: private, Trusted: trusted})
			storagetest.Write(t, s, key, nil, tinyImage())
			attacker := at(t, s, forged)
			if err := attacker.Remove(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			m := storagetest.Write(t, attacker, key, nil, storagetest.SmallImage(3))
			_, err := s.TrustedManifest(t.Context(), key)
			if !errors.Is(err, storage.ErrUntrusted) || !strings.Contains(err.Error(), "snapshot ns/one in dir:") ||
				!strings.Contains(err.Error(), " is "+name+":") {
				t.Errorf("%s, %s: %v", what, name, err)
			}
			// It is listed, verified and removed as any other.
			if got, err := s.Manifest(t.Context(), key); err != nil || got.SignedBy() != m.SignedBy() {
				t.Errorf("%s, %s: read: %v", what, name, err)
			}
			child := storagetest.Write(t, s, storage.Key{Namespace: "ns", Name: "child"}, m, storagetest.SmallImage(3))
			if child.DigestKey == m.DigestKey || child.Packs[0].ID == m.Packs[0].ID {
				t.Errorf("%s, %s: something is taken over from this parent", what, name)
			}
			if err := s.Remove(t.Context(), key); err != nil {
				t.Errorf("%s, %s: remove: %v", what, name, err)
			}
		}
	}
}

// TestHostileUnsignedManifest: a signed manifest is changed, and its digest with it.
func TestHostileUnsignedManifest(t *testing.T) {
	private, public := signer(1)
	forger, forgers := signer(2)
	for what, o := range bySigning(t) {
		o.SigningKey, o.Trusted = private, []ed25519.PublicKey{public}
		s := openDir(t, o)
		storagetest.Write(t, s, key, nil, tinyImage())
		other := storage.Key{Namespace: "ns", Name: "two"}
		storagetest.Write(t, s, other, nil, tinyImage())
		path := objectPath(s, "ns/snapshots/one/manifest")
		good, moved := content(t, path), content(t, objectPath(s, "ns/snapshots/two/manifest"))
		split := func(data []byte) (signed, section []byte) {
			body := data[:len(data)-digestLength]
			return body[:len(body)-sectionLength], body[len(body)-sectionLength:]
		}
		signed, section := split(good)
		_, otherSection := split(moved)
		changed := bytes.Clone(signed)
		changed[len(changed)-1] ^= 1
		digest := blake3.Sum256(signed)
		withoutContext := append(bytes.Clone(section[:12+ed25519.PublicKeySize]), ed25519.Sign(private, digest[:])...)
		foreign := append(bytes.Clone(section[:12]), forgers...)
		foreign = append(foreign, section[12+ed25519.PublicKeySize:]...)
		claimed, err := forger.Sign(nil, digest[:], &ed25519.Options{Context: "diapause.dev manifest"})
		if err != nil {
			t.Fatal(err)
		}
		xtra := []byte("xtra\x00\x00\x00\x00\x00\x00\x00\x00")
		mine := signing.Fingerprint(public)
		for _, c := range []struct {
			name string
			data []byte
			kind error
			want string
		}{
			{"cut off", sealed(signed), storage.ErrUntrusted, "not signed"},
			{"hidden", sealed(signed, []byte("sigN"), section[4:]), storage.ErrUntrusted, "not signed"},
			{"changed", sealed(changed, section), storage.ErrCorrupt, mine},
			{"of another manifest", sealed(signed, otherSection), storage.ErrCorrupt, mine},
			{"another manifest", moved, storage.ErrCorrupt, "ns/two"},
			{"under a foreign key", sealed(signed, foreign), storage.ErrCorrupt, signing.Fingerprint(forgers)},
			{
				"under a claimed key", sealed(signed, section[:12+ed25519.PublicKeySize], claimed), storage.ErrCorrupt,
				mine,
			},
			{"for something else", sealed(signed, withoutContext), storage.ErrCorrupt, mine},
			{"twice", sealed(signed, section, section), storage.ErrCorrupt, "twice"},
			{"of another manifest, too", sealed(signed, section, otherSection), storage.ErrCorrupt, "twice"},
			{"section after it", sealed(signed, section, xtra), storage.ErrCorrupt, "not the last"},
			{"bytes after it", sealed(signed, section, []byte("rest")), storage.ErrCorrupt, "cut short"},
			{
				"short", sealed(signed, []byte("sign\x01\x00\x00\x00\x00\x00\x00\x00x")), storage.ErrCorrupt,
				"1 bytes",
			},
			{"empty", sealed(signed, []byte("sign\x00\x00\x00\x00\x00\x00\x00\x00")), storage.ErrCorrupt, "0 bytes"},
		} {
			if what == "encrypted" && c.name == "hidden" { // SEAL must be the last
				c.kind, c.want = storage.ErrCorrupt, "not the last"
			}
			overwrite(t, path, c.data)
			_, err := s.TrustedManifest(t.Context(), key)
			if !errors.Is(err, c.kind) || !strings.Contains(err.Error(), "ns/one") || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %s: %v", what, c.name, err)
			}
		}
		overwrite(t, path, good)
		if _, err := s.TrustedManifest(t.Context(), key); err != nil {
			t.Errorf("%s: as it was: %v", what, err)
		}
	}
}

// TestHostileUnsignedRepair: a repair takes no forged manifest into a store that trusts its forger not.
func TestHostileUnsignedRepair(t *testing.T) {
	private, public := signer(1)
	o := storage.Options{SigningKey: private, Trusted: []ed25519.PublicKey{public}}
	spool, far := openDir(t, o), openDir(t, storage.Options{})
	storagetest.Write(t, spool, key, nil, tinyImage())
	storagetest.Write(t, far, key, nil, storagetest.SmallImage(3))
	path := objectPath(spool, "ns/snapshots/one/manifest")
	bad := content(t, path)
	bad[20] ^= 1
	overwrite(t, path, bad)
	r, err := storage.Repair(t.Context(), key, spool, []*storage.Store{far}, nil)
	if err != nil || len(r.Repaired) != 0 || len(r.Lost) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}
