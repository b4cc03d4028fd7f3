// Package gcs keeps a store in a bucket of Google Cloud Storage, below a prefix.
//
// An object of the store is an object of the bucket. It is created under the precondition that it does not exist yet,
// with a checksum that the service compares before it commits. The client library does all retries, bounded in time,
// and finds credentials in its usual way. With STORAGE_EMULATOR_HOST, everything goes to an emulator, without
// credentials.
package gcs
