// Package s3 keeps a store in a bucket of Amazon S3, or of a service with the same protocol, below a prefix.
//
// An object of the store is an object of the bucket. It is created under the condition that it does not exist yet. A
// small object is sent in one request, which has the condition. A larger one is sent in parts, and their completion has
// it. Each request that sends bytes has their SHA-256, which the service compares. Some services ignore the condition:
// see [Backend.CheckCreateOnly].
//
// The client library retries what may pass. Every request has a time limit, and every answer a size limit.
//
// What a killed process has uploaded of an object stays in the bucket as an upload that is not complete. Nobody sees
// it. A lifecycle rule of the bucket has to abort such uploads.
package s3
