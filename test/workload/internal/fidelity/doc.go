// Package fidelity is a workload of several processes and threads that checks itself all the time:
// streams between processes, futexes, files, timers, its environment. Each check counts what it has
// done and keeps the first thing that went wrong, so that after a restore one can see that all go
// on from where they were and that nothing was lost or repeated.
package fidelity
