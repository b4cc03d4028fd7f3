// Package ending decides what becomes of this node's pods that end. One that is told to end is saved before, if its
// policy says so. One that is deleted in its sleep leaves the snapshot of that sleep to its successors.
package ending
