// Package fast has another encoder and decoder for the state of gVisor's kernel, and makes the source tree that a runsc
// with them is built from.
//
// The state of the kernel is what a checkpoint holds besides memory: tasks, files, sockets, timers. gVisor's package
// state encodes it while the sandbox is paused, and decodes it before a restored sandbox runs. The files in _gvisor
// take the place of single files of that package. They write the same format, so either build loads what the other has
// saved.
//
// It also has the system call filters made when runsc is built, as gVisor's own build does.
//
// What is different, what it brings and what is proven is in README.md. The package is not for changing anything else
// about gVisor.
package fast
