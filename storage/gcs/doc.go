// Package gcs keeps a store in a bucket of Google Cloud Storage, below a prefix.
//
// An object of the store is an object of the bucket, created under the precondition that there is
// none, with a checksum that the service compares before it commits. Every retry is the client
// library's own, bounded in time. Credentials are found as the library finds them;
// STORAGE_EMULATOR_HOST sends everything to an emulator, without any.
package gcs
