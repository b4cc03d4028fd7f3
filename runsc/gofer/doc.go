// Package gofer is the agent's side of the sidecar socket. It recognizes sidecars by their token, takes over the
// sentry's socket for a checkpoint, and answers the relayed reads of a restore.
package gofer
