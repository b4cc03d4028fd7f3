package rules_test

import (
	"testing"

	"diapause.dev/agent/kube/rules"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// TestS3Location: a store in S3 has its location from a storage config, and is found again by what a snapshot's status
// says.
func TestS3Location(t *testing.T) {
	style := true
	for want, s := range map[string]podsnapshotv1.S3Storage{
		"s3://bucket?region=r":   {Bucket: "bucket", Region: "r"},
		"s3://bucket/p?region=r": {Bucket: "bucket", Path: "p/", Region: "r"},
		"s3://bucket/p/q?region=r&endpoint=https://h:1&pathStyle=true": {
			Bucket: "bucket", Path: "p/q", Region: "r", Endpoint: "https://h:1", PathStyle: &style,
		},
	} {
		c := &podsnapshotv1.PodSnapshotStorageConfig{}
		c.Spec.SnapshotStorageConfig.S3 = &s
		location, err := rules.Location(c)
		if err != nil || location != want || !rules.InBucket(location) {
			t.Errorf("location %q, %v; want %q", location, err, want)
		}
		wantFound(t, location)
		c.Spec.SnapshotStorageConfig.Dir = &podsnapshotv1.DirStorage{Path: "/x"}
		if location, err := rules.Location(c); err == nil {
			t.Errorf("of two backends: %q", location)
		}
	}
	got := rules.Stored("s3://bucket/p?region=r", "ns", "a").S3.ObservedPath
	if want := "s3://bucket/p/ns/snapshots/a?region=r"; got != want {
		t.Errorf("the status says %q, want %q", got, want)
	}
}

// wantFound checks that a store is found again by the status of a snapshot in it.
func wantFound(t *testing.T, location string) {
	t.Helper()
	snapshot := &podsnapshotv1.PodSnapshot{}
	snapshot.Namespace, snapshot.Name = "ns", "a"
	snapshot.Status.StorageStatus = rules.Stored(location, "ns", "a")
	if got := rules.StoredAt(snapshot); got != location {
		t.Errorf("stored at %q, want %q", got, location)
	}
}

// TestAzureLocation: it is the same with a store in Azure Blob Storage.
func TestAzureLocation(t *testing.T) {
	for want, s := range map[string]podsnapshotv1.AzureBlobStorage{
		"azblob://acc/con":     {Account: "acc", Container: "con"},
		"azblob://acc/con/p/q": {Account: "acc", Container: "con", Path: "p/q/"},
		"azblob://acc/con/p?endpoint=https://h:1/acc": {
			Account: "acc", Container: "con", Path: "p", Endpoint: "https://h:1/acc",
		},
	} {
		c := &podsnapshotv1.PodSnapshotStorageConfig{}
		c.Spec.SnapshotStorageConfig.AzureBlob = &s
		location, err := rules.Location(c)
		if err != nil || location != want || !rules.InBucket(location) {
			t.Errorf("location %q, %v; want %q", location, err, want)
		}
		wantFound(t, location)
		c.Spec.SnapshotStorageConfig.S3 = &podsnapshotv1.S3Storage{Bucket: "bucket", Region: "r"}
		if location, err := rules.Location(c); err == nil {
			t.Errorf("of two backends: %q", location)
		}
	}
	got := rules.Stored("azblob://acc/con/p?endpoint=https://h", "ns", "a").AzureBlob.ObservedPath
	if want := "azblob://acc/con/p/ns/snapshots/a?endpoint=https://h"; got != want {
		t.Errorf("the status says %q, want %q", got, want)
	}
}
