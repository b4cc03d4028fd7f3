// Package model compares the store with a model of it: several processes, each a node with its own
// clock, put, restore, remove, verify, replicate and sweep at random, while the backend fails in every
// way that a backend can fail and processes are killed. The model knows what each snapshot must hold,
// or, where an operation failed, what it may hold. In the end both must agree.
package model
