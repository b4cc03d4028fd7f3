// Package names makes the names of PodSnapshots. The names say their order.
//
// Clients take the PodSnapshot with the latest creationTimestamp for the newest one and, among equals, the
// one with the least name. A creationTimestamp has whole seconds, and several snapshots can be made in one
// second. So later names are smaller. A name is a UUID of version 8:
//
//	60 bits: microseconds that are left until the year 2200
//	62 bits: the [Tag] of the asker, by which a request that is retried finds its snapshot
//
// A [Clock] never makes a name that is larger than an earlier one, even if the node's clock is set back. It
// also makes names smaller than those that it sees. So a snapshot has a smaller name than all those that its
// node knew of when it was made, even if the clocks of nodes differ.
package names
