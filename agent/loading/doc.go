// Package loading decides which bytes of a snapshot a sandbox gets next, from where, and how fast. It knows no pods and
// no life of a restore: that is package restore.
//
// policy.go says when a sandbox loads ahead of need. need.go keeps what is known of a sandbox's need. workingset.go
// fetches what a sandbox will ask for first. image.go and read.go hand out the bytes.
package loading
