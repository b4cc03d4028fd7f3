package rules

import (
	"strings"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/storage/azblob"
	"diapause.dev/storage/s3"
)

const (
	gcsScheme = "gs://"
	dirScheme = "dir:"
)

// Location returns the location of a storage config's store, as "gs://bucket/prefix", "s3://bucket/prefix?region=R",
// "azblob://account/container/prefix" or "dir:/path".
func Location(c *podsnapshotv1.PodSnapshotStorageConfig) (string, error) {
	var all []string
	s := c.Spec.SnapshotStorageConfig
	if s.GCS != nil {
		all = append(all, strings.TrimSuffix(gcsScheme+s.GCS.Bucket+"/"+s.GCS.Path, "/"))
	}
	if s.S3 != nil {
		all = append(all, s3.Place{
			Bucket: s.S3.Bucket, Prefix: s.S3.Path, Region: s.S3.Region, Endpoint: s.S3.Endpoint, PathStyle: s.S3.PathStyle,
		}.String())
	}
	if s.AzureBlob != nil {
		all = append(all, azblob.Place{
			Account: s.AzureBlob.Account, Container: s.AzureBlob.Container, Prefix: s.AzureBlob.Path,
			Endpoint: s.AzureBlob.Endpoint,
		}.String())
	}
	if s.Dir != nil {
		all = append(all, dirScheme+s.Dir.Path)
	}
	switch len(all) {
	case 0:
		return "", Refuse("PodSnapshotStorageConfig %s names no backend that this agent knows: set gcs, s3, azureBlob or dir",
			c.Name)
	case 1:
		return all[0], nil
	}
	return "", Refuse("PodSnapshotStorageConfig %s names several backends: leave only one of gcs, s3, azureBlob and dir",
		c.Name)
}

// InBucket reports whether the store at a location is in a bucket. From there only the controller removes anything, so
// that nodes need no right to delete.
func InBucket(location string) bool {
	return strings.HasPrefix(location, gcsScheme) || hasParameters(location)
}

// Stored returns the storage status of a snapshot in the store at location.
func Stored(location, namespace, name string) *podsnapshotv1.StorageStatus {
	at, parameters := cutParameters(location)
	place := strings.TrimSuffix(at, "/") + inStore(namespace, name) + parameters
	if dir, ok := strings.CutPrefix(place, dirScheme); ok {
		return &podsnapshotv1.StorageStatus{Dir: &podsnapshotv1.DirStorageStatus{ObservedPath: dir}}
	}
	if strings.HasPrefix(place, azblob.Scheme) {
		return &podsnapshotv1.StorageStatus{AzureBlob: &podsnapshotv1.AzureBlobStorageStatus{ObservedPath: place}}
	}
	if strings.HasPrefix(place, s3.Scheme) {
		return &podsnapshotv1.StorageStatus{S3: &podsnapshotv1.S3StorageStatus{ObservedPath: place}}
	}
	return &podsnapshotv1.StorageStatus{GCS: &podsnapshotv1.GCSStorageStatus{ObservedGCSPath: place}}
}

func inStore(namespace, name string) string { return "/" + namespace + "/snapshots/" + name }

// hasParameters reports whether a location is of a kind that may have parameters.
func hasParameters(location string) bool {
	return strings.HasPrefix(location, s3.Scheme) || strings.HasPrefix(location, azblob.Scheme)
}

// cutParameters cuts the parameters from a location.
func cutParameters(location string) (at, parameters string) {
	i := strings.IndexByte(location, '?')
	if i < 0 || !hasParameters(location) {
		return location, ""
	}
	return location[:i], location[i:]
}

// StoredAt returns the location of the store that a snapshot is in, according to its status. It is empty if the
// status does not say.
func StoredAt(s *podsnapshotv1.PodSnapshot) string {
	place := ""
	switch st := s.Status.StorageStatus; {
	case st == nil:
	case st.GCS != nil:
		place = st.GCS.ObservedGCSPath
	case st.S3 != nil:
		place = st.S3.ObservedPath
	case st.AzureBlob != nil:
		place = st.AzureBlob.ObservedPath
	case st.Dir != nil:
		place = dirScheme + st.Dir.ObservedPath
	}
	place, parameters := cutParameters(place)
	location, ok := strings.CutSuffix(place, inStore(s.Namespace, s.Name))
	if !ok {
		return ""
	}
	return location + parameters
}
