// Package sidecar is the program between a sentry and the agent.
//
// runsc starts the sidecar (cmd/checkpointgofer) when the directory given by --image-path holds a
// file gcs_opts.json. The sidecar gets a socket to the sentry as fd 3 and that file as fd 4. The file is
// ours (Options): it says where the agent listens, and which request this is.
//
//   - checkpoint: the sidecar hands the sentry's socket over to the agent and exits. From then on
//     the agent is the sentry's checkpoint gofer. If the agent dies, the save fails and the sandbox
//     runs on.
//   - workload: a checkpoint that a process of the sandbox begins. The sidecar waits for this as long
//     as the sandbox lives, and then hands over as for any checkpoint.
//   - restore: the sidecar stays as the sentry's checkpoint gofer and relays every read to the
//     agent, which writes into the sandbox's memory files itself. When the agent goes away, the
//     sidecar connects again and repeats what is outstanding, for as long as the sandbox lives.
//     The sidecar allocates the memory of each read before it passes the read on. Because it runs in
//     the pod's cgroup, the pod is charged, and not the agent that writes.
//     The sentry has no known limit for this wait: sandboxes have waited 270 s for their pages. They
//     served meanwhile whatever needed none of these pages, and went on when an agent came.
//   - rootfs-checkpoint, rootfs-workload, rootfs-restore: the same, for an image of files alone. A
//     sandbox that was restored this way keeps its sidecar as long as it lives: a container that is
//     started again reads its files again.
//
// The wire between sidecar and agent is a SOCK_SEQPACKET socket. One packet is one Message; file
// descriptors travel beside it.
package sidecar
