// Package bucket has what the stores in object storage have in common, whatever protocol their service speaks: how an
// object is sent in parts, read again if an answer was cut, and listed in pages; what a request may take in time and
// memory; what kind an error is; and how a service is found out that overwrites what it shall only create.
//
// It knows no service. Packages storage/s3 and storage/azblob use it.
package bucket
