package adopt_test

import (
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"diapause.dev/agent/kube/adopt"
	"diapause.dev/agent/snapshots"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/storage"
	"diapause.dev/storage/dir"
	"diapause.dev/storage/keyring"
	"diapause.dev/storage/signing"
	"diapause.dev/storage/signing/signingtest"
	"diapause.dev/storage/storagetest"
)

const (
	oldCluster = "0c3a4cf3-3d4e-4b6f-8b1a-000000000001"
	newCluster = "0c3a4cf3-3d4e-4b6f-8b1a-000000000002"
	namespace  = "team-a"
)

// shared is a store that other nodes see, too.
type shared struct{ *snapshots.Central }

func (shared) Shared(string) bool { return true }

// rig is an old cluster's store, and a new cluster without any objects of ours but a storage config.
type rig struct {
	*testing.T
	location string
	client   client.Client
}

func newRig(t *testing.T) *rig {
	r := &rig{T: t, location: "dir:" + t.TempDir()}
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, podsnapshotv1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	config := &podsnapshotv1.PodSnapshotStorageConfig{ObjectMeta: metav1.ObjectMeta{Name: "storage"}}
	config.Spec.SnapshotStorageConfig.Dir = &podsnapshotv1.DirStorage{Path: strings.TrimPrefix(r.location, "dir:")}
	r.client = fake.NewClientBuilder().WithScheme(s).WithStatusSubresource(&podsnapshotv1.PodSnapshot{}).WithObjects(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: newCluster}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, config,
	).Build()
	return r
}

// keys makes a directory of keys with one file, for all namespaces.
func (r *rig) keys(lines ...string) string {
	r.Helper()
	d := r.TempDir()
	if err := os.WriteFile(filepath.Join(d, "default"), []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		r.Fatal(err)
	}
	return d
}

// put stores a snapshot of the old cluster. Without keys it is in the clear, without a signer it is not signed.
func (r *rig) put(name, keys string, signer ed25519.PrivateKey) {
	r.Helper()
	o := storage.Options{Logger: slog.New(slog.DiscardHandler), SigningKey: signer}
	uid := "u-" + name
	if keys != "" {
		o.Keyring, uid = keyring.Dir(keys), snapshot.MakeUID(name, true)
	}
	b, err := dir.Open(strings.TrimPrefix(r.location, "dir:"))
	if err != nil {
		r.Fatal(err)
	}
	defer b.Close()
	s, err := storage.Open(r.Context(), b, o)
	if err != nil {
		r.Fatal(err)
	}
	k := snapshot.Key{Namespace: namespace, Name: name}
	w, err := s.NewWriter(r.Context(), k, storage.WriterOptions{})
	if err != nil {
		r.Fatal(err)
	}
	if err := w.File("f").Chunk(storagetest.Bytes(1, 1000)); err != nil {
		r.Fatal(err)
	}
	meta := snapshot.Meta{Key: k, UID: uid, Created: time.Now(), Origin: snapshot.Origin{Cluster: oldCluster, Pod: "web"}}
	if _, err := w.Commit(r.Context(), meta); err != nil {
		r.Fatal(err)
	}
}

// adopt runs with a directory of keys and the files of the trusted ones.
func (r *rig) adopt(keys string, edit func(*adopt.Config), trusted ...signingtest.Pair) (adopt.Report, error) {
	r.Helper()
	stores, err := snapshots.OpenCentral(snapshots.Options{
		Store: r.location, Keys: keys, AcceptNetworkDirectory: true, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		r.Fatal(err)
	}
	defer stores.Close()
	c := adopt.Config{
		Client: r.client, Stores: shared{stores}, Location: r.location, From: oldCluster, Ended: true,
		Now: func() (time.Time, error) { return time.Now(), nil },
	}
	for _, k := range trusted {
		public, err := signing.ReadPublic(k.PublicFile)
		if err != nil {
			r.Fatal(err)
		}
		c.Trusted = append(c.Trusted, public...)
	}
	edit(&c)
	return adopt.Run(r.Context(), c)
}

// TestKeys: a new cluster has its own keys, and an old one's snapshots are encrypted and signed with others. What it
// takes over is what both kinds of keys allow. If that is nothing, nothing is changed.
func TestKeys(t *testing.T) {
	r := newRig(t)
	older, newer := strings.Repeat("01", 32), strings.Repeat("02", 32)
	old, own, both := r.keys(older), r.keys(newer), r.keys(newer, older)
	theirs, ours, stranger := signingtest.New(t), signingtest.New(t), signingtest.New(t)
	r.put("signed", old, theirs.Private)
	r.put("stranger", old, stranger.Private)
	r.put("unsigned", old, nil)
	r.put("plain", "", theirs.Private)
	const taken, unread, unsigned, untrusted = "", "cannot be read", "is not signed", "not among the trusted keys"
	only := r.keys(newer, older, "encrypted-only")
	dry := func(c *adopt.Config) { c.DryRun = true }
	for _, test := range []struct {
		name, keys string
		edit       func(*adopt.Config)
		trusted    signingtest.Pair
		want       [4]string // plain, signed, stranger, unsigned
	}{
		{"its own keys alone", own, dry, ours, [4]string{untrusted, unread, unread, unread}},
		{"no encryption keys", "", dry, theirs, [4]string{taken, unread, unread, unread}},
		{"its own signing key alone", both, dry, ours, [4]string{untrusted, untrusted, untrusted, unsigned}},
		{"both", both, dry, theirs, [4]string{taken, taken, untrusted, unsigned}},
		{"encrypted-only", only, dry, theirs, [4]string{unread, taken, untrusted, unsigned}},
		{"whatever is there", both, func(c *adopt.Config) { c.DryRun, c.AcceptUnsigned = true, true }, ours, [4]string{}},
	} {
		report, err := r.adopt(test.keys, test.edit, ours, test.trusted)
		if err != nil || len(report.Snapshots) != len(test.want) {
			t.Fatalf("%s: %+v, %v", test.name, report, err)
		}
		for _, s := range report.Snapshots {
			i := map[string]int{"plain": 0, "signed": 1, "stranger": 2, "unsigned": 3}[s.Key.Name]
			if want := test.want[i]; !strings.Contains(s.Not, want) || (want == taken) != (s.Not == "") {
				t.Errorf("%s: %s: %q, want %q", test.name, s.Key.Name, s.Not, want)
			}
		}
	}

	take := func(*adopt.Config) {}
	if _, err := r.adopt(both, take, ours); err == nil || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("without the old cluster's signing key: %v", err)
	}
	r.wantTaken(nil, "")
	for range 2 {
		if _, err := r.adopt(both, take, ours, theirs); err != nil {
			t.Fatal(err)
		}
	}
	r.wantTaken([]string{"plain", "signed"}, newCluster)
}

// wantTaken fails unless the cluster has these PodSnapshots, and the store says that it has taken over.
func (r *rig) wantTaken(names []string, by string) {
	r.Helper()
	var all podsnapshotv1.PodSnapshotList
	if err := r.client.List(r.Context(), &all); err != nil {
		r.Fatal(err)
	}
	var got []string
	for _, s := range all.Items {
		got = append(got, s.Name)
	}
	if fmt.Sprint(got) != fmt.Sprint(names) {
		r.Errorf("the cluster has %v, want %v", got, names)
	}
	path := filepath.Join(strings.TrimPrefix(r.location, "dir:"), "diapause_clusters", oldCluster+".taken.json")
	note, err := os.ReadFile(path)
	if (by == "") != os.IsNotExist(err) || !strings.Contains(string(note), by) {
		r.Errorf("the store says %q, %v; want it taken by %q", note, err, by)
	}
}
