// Package plan decides what a new pod gets from the record of another one. A record is in a snapshot and may be forged,
// so what it asks of the node takes an operator's allowance. The package does no I/O.
package plan
