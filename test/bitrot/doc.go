// Package bitrot flips single bits in every kind of object of a store, and checks that no reader ever
// gets a byte that was not written, and that a verification names the object and each snapshot that
// it hurts.
package bitrot
