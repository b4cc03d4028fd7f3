// Package bed gives a program a node of its own: a real containerd with our
// runtime, and the agent, in namespaces that end with the program. It can also be
// a Kubernetes API server alone, or a cluster of several nodes.
//
// A test binary calls [Main] from TestMain; the demo and the benchmarks call
// [Enter] first thing in main. Either runs the program again inside fresh mount,
// network, PID, IPC and UTS namespaces, where every path is the production
// default (/run/containerd/containerd.sock, /var/lib/diapause, /etc/cni/net.d)
// and yet nothing of the machine is touched. Code after Enter runs inside: it
// can dial those sockets and the pods' addresses. There [Start] starts
// containerd, and the methods of [Bed] run agents and pods. A program that enters
// with [tools.Kubernetes] can instead call [StartAPI], or [StartCluster], which
// makes the nodes of a cluster out of further namespaces inside the bed's.
//
// Four processes of the one program make this up:
//
//	outer   what the user or go test started; waits for the warden
//	warden  outside as well, in a session of its own; makes the scratch
//	        directory, and removes it and the bed's cgroups when all is over,
//	        even if outer was killed
//	init    the PID namespace's first process: mounts, network, reaping; the
//	        kernel ends all else in the bed when it ends
//	inside  the one in which Enter returns
//
// and one more, node, is the first process of each node of a cluster, like init.
//
// Beds of several programs may be there at once; within one program there is
// one. What is not isolated: the machine's file tree outside of /etc, /opt, /run,
// /var/lib and /var/log, and cgroups, of which the bed uses one by its own name.
package bed
