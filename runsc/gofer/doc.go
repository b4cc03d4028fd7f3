// Package gofer is the agent's side of the sidecar socket. It recognizes sidecars by their token, hands those that save
// to a capture, and answers the relayed reads of those that restore.
package gofer
