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
		snapshot := &podsnapshotv1.PodSnapshot{}
		snapshot.Namespace, snapshot.Name = "ns", "a"
		snapshot.Status.StorageStatus = rules.Stored(location, "ns", "a")
		if got := rules.StoredAt(snapshot); got != location {
			t.Errorf("stored at %q, want %q", got, location)
		}
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
