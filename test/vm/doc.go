// Package vm runs programs in a virtual machine with a kernel of its own: Debian's, with cgroup v2 alone, which the
// machine that the tests run on may not have. It needs no KVM, and is some ten times slower without.
//
// A machine boots from a disk with busybox and the given files, runs a script, and ends with it.
package vm
