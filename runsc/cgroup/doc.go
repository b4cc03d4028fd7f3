// Package cgroup finds the memory cgroup of a process, reads its limits, and raises them for the duration of an
// operation. It takes away limits of processor time, too.
//
// A process is in one cgroup, and the limits of all cgroups above that one bind it too. A level is one of these
// cgroups. The package knows cgroup v1, where each controller has its own hierarchy, and v2. The process's own
// /proc/PID/cgroup says which of the two has the memory controller.
//
// Containerd's cgroups library sets up and removes cgroups, and reads all statistics of one of them. The package
// uses it to read /proc/PID/cgroup. The library does not walk up the hierarchy, and does not put a limit back.
package cgroup
