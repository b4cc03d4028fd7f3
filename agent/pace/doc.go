// Package pace has background work give way to everything else on the node. The work takes the processors that nothing
// else needs, and a small share of them if there are none. It knows nothing of what the work is.
//
// The scheduler cannot do this. Pods and the agent are in cgroups of their own, among which processor time is divided
// by the weights of the cgroups: the niceness of a thread counts only inside its own.
package pace
