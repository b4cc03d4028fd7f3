// Package azblob keeps a store in a container of Azure Blob Storage, below a prefix.
//
// An object of the store is a block blob. It is created under the condition that it does not exist yet. A small object
// is sent in one request, which has the condition. A larger one is sent in blocks, and the request that puts them
// together has it. The identifiers of blocks have a token of their upload, so that no writer puts together another's.
// Each request that sends bytes has their CRC-64, which the service compares. [Backend.CheckCreateOnly] finds out
// whether the service ignores the condition.
//
// The client library retries what may pass. Every request has a time limit, and every answer a size limit.
//
// What a killed process has uploaded of an object stays in the container as blocks of no blob. Nobody sees them, and
// the service removes them after a week.
package azblob
