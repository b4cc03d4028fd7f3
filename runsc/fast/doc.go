// Package fast has another encoder and decoder for the state of gVisor's kernel, among other changes, as a series of
// patches. It makes the source tree that a runsc with them is built from.
//
// The state of the kernel is what a checkpoint holds besides memory: tasks, files, sockets, timers. gVisor's package
// state encodes it while the sandbox is paused, and decodes it before a restored sandbox runs. The patches write the
// same format, so either build loads what the other has saved.
//
// The text at the beginning of each patch says what it changes, why, and what tests it. README.md lists them. The file
// patches/UPSTREAM has the digest of each file of gVisor that they touch, before and after.
package fast
