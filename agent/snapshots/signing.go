package snapshots

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"

	"diapause.dev/agent/errkind"
	"diapause.dev/storage"
	"diapause.dev/storage/signing"
)

// keys are the keys that sign snapshots, as the agent's options name them.
type keys struct {
	signing ed25519.PrivateKey  // nil: snapshots of this node are not signed
	trusted []ed25519.PublicKey // none: every snapshot may be restored
}

// readKeys reads the keys once. A change of the files counts for the next agent.
func (o *Options) readKeys() (k keys, err error) {
	if o.SigningKey != "" {
		if k.signing, err = signing.ReadPrivate(o.SigningKey); err != nil {
			return keys{}, fmt.Errorf("%w: --signing-key: %w", errkind.ErrInvalid, err)
		}
	}
	if o.TrustedKeys != "" {
		if k.trusted, err = signing.ReadPublic(o.TrustedKeys); err != nil {
			return keys{}, fmt.Errorf("%w: --trusted-keys: %w", errkind.ErrInvalid, err)
		}
	}
	if k.signing == nil || len(k.trusted) == 0 {
		return k, nil
	}
	if own := k.signing.Public().(ed25519.PublicKey); !signing.Has(k.trusted, own) {
		return keys{}, fmt.Errorf("%w: --signing-key %s: its public key %s is not in --trusted-keys %s, so this node could "+
			"not restore its own snapshots: add what \"openssl pkey -in %s -pubout\" prints",
			errkind.ErrInvalid, o.SigningKey, signing.Fingerprint(own), o.TrustedKeys, o.SigningKey)
	}
	return k, nil
}

// log logs who is trusted.
func (k keys) log(log *slog.Logger) {
	for _, key := range k.trusted {
		log.Info("snapshots signed by this key may be restored", "key", signing.Fingerprint(key))
	}
	if k.signing == nil && len(k.trusted) > 0 {
		log.Warn("this node cannot restore its own snapshots: it has trusted keys and no signing key")
	}
}

// advise adds to an ErrUntrusted what the operator can do.
func advise(err error) error {
	if !errors.Is(err, storage.ErrUntrusted) {
		return err
	}
	return fmt.Errorf("%w: choose a snapshot that a key in --trusted-keys has signed; if you know the signer, add its "+
		"public key there", err)
}

// Signature says who has signed a snapshot, as one store has it.
type Signature struct {
	Store   string // its location
	Signer  string // the fingerprint of the signer's key; empty: not signed
	Refused bool   // because of its signer, or for want of one, this agent does not restore it
}

// signatureOf returns who has signed a manifest of a store.
func signatureOf(s *storage.Store, m *storage.Manifest) Signature {
	return Signature{Store: s.Backend().Location(), Signer: m.SignedBy(), Refused: s.Trusts(m) != nil}
}
