//go:build !race

package fast_test

const (
	// addressChecks has the compiler check each pointer that is made from an address.
	addressChecks = "-gcflags=all=-d=checkptr"
	// graphs is how many random graphs are compared.
	graphs = "300"
	// short has tests that alter each byte of a stream alter them all.
	short = "-short=false"
)
