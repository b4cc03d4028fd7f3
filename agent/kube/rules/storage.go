package rules

import (
	"strings"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

const (
	gcsScheme = "gs://"
	s3Scheme  = "s3://"
	dirScheme = "dir:"
)

// Location returns the location of a storage config's store, as "gs://bucket/prefix" or "dir:/path".
func Location(c *podsnapshotv1.PodSnapshotStorageConfig) (string, error) {
	switch s := c.Spec.SnapshotStorageConfig; {
	case s.GCS != nil && s.Dir != nil:
		return "", Refuse("PodSnapshotStorageConfig %s names two backends: leave only gcs or dir", c.Name)
	case s.GCS != nil:
		return strings.TrimSuffix(gcsScheme+s.GCS.Bucket+"/"+s.GCS.Path, "/"), nil
	case s.Dir != nil:
		return dirScheme + s.Dir.Path, nil
	}
	return "", Refuse("PodSnapshotStorageConfig %s names no backend that this agent knows: set gcs or dir", c.Name)
}

// InBucket reports whether the store at a location is in a bucket. From there only the controller removes anything, so
// that nodes need no right to delete.
func InBucket(location string) bool {
	return strings.HasPrefix(location, gcsScheme) || strings.HasPrefix(location, s3Scheme)
}

// Stored returns the storage status of a snapshot in the store at location.
func Stored(location, namespace, name string) *podsnapshotv1.StorageStatus {
	place := strings.TrimSuffix(location, "/") + "/" + namespace + "/snapshots/" + name
	if dir, ok := strings.CutPrefix(place, dirScheme); ok {
		return &podsnapshotv1.StorageStatus{Dir: &podsnapshotv1.DirStorageStatus{ObservedPath: dir}}
	}
	return &podsnapshotv1.StorageStatus{GCS: &podsnapshotv1.GCSStorageStatus{ObservedGCSPath: place}}
}

// StoredAt returns the location of the store that a snapshot is in, according to its status. It is empty if the
// status does not say.
func StoredAt(s *podsnapshotv1.PodSnapshot) string {
	place := ""
	switch st := s.Status.StorageStatus; {
	case st == nil:
	case st.GCS != nil:
		place = st.GCS.ObservedGCSPath
	case st.Dir != nil:
		place = dirScheme + st.Dir.ObservedPath
	}
	location, ok := strings.CutSuffix(place, "/"+s.Namespace+"/snapshots/"+s.Name)
	if !ok {
		return ""
	}
	return location
}
