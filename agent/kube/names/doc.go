// Package names makes the names of PodSnapshots, which say their order.
//
// Clients take the PodSnapshot with the latest creationTimestamp for the newest, and among equals the
// one whose name is the least. A creationTimestamp has whole seconds, in which several snapshots are made.
// So names fall with time. A name is a UUID of version 8:
//
//	60 bits: microseconds that are left until the year 2200
//	62 bits: a [Tag] of who asked, by which a request that is tried again finds its snapshot
//
// A [Clock] never makes a name that is larger than an earlier one, though the node's clock is set
// back. It also stays behind the names that it sees: then a snapshot has a smaller name than those
// that its node knew of when it was made, although the clocks of nodes differ.
package names
