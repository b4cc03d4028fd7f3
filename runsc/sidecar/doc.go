// Package sidecar is the program between a sentry and the agent.
//
// runsc starts the sidecar (cmd/checkpointgofer) when the directory given by --image-path holds a
// file gcs_opts.json. The sidecar gets a socket to the sentry as fd 3 and that file as fd 4. The file is
// ours (Options): it says where the agent listens, and which request this is.
//
//   - checkpoint: the sidecar is the sentry's checkpoint gofer. It passes on to the agent which ranges of which
//     memory files the sentry saves, and the agent copies them. It has given up root's identity and all
//     capabilities. If it or the agent dies, the save fails and the sandbox runs on.
//   - workload: a checkpoint that a process of the sandbox begins. The sidecar waits for this as long
//     as the sandbox lives, and then is as for any checkpoint.
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
// gVisor's servers trust what a sentry sends: it can make them panic, wait for ever, and grow without limit.
// They run in this process alone, which may die.
//
// The wire between sidecar and agent is a SOCK_SEQPACKET socket. One packet is one Message; file
// descriptors travel beside it.
package sidecar
