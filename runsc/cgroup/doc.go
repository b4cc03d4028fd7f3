// Package cgroup finds the memory cgroup of a process, reads its limits, and raises them for the time of
// an operation.
//
// A process is in one cgroup, and the limits of all cgroups above that one bind it too: a level is one of
// them. The package knows cgroup v1, where each controller has a hierarchy of its own, and v2, and asks
// the process which of them has the memory controller.
//
// Containerd's cgroups library sets up and removes cgroups, and reads all statistics of one of them. The
// package uses it to read /proc/PID/cgroup. What it lacks is the walk up the hierarchy, and a limit that is put back.
package cgroup
