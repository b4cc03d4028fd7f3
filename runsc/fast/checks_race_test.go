//go:build race

package fast_test

const (
	// addressChecks also has the compiler check each pointer that is made from an address.
	addressChecks = "-race"
	// graphs is how many random graphs are compared.
	graphs = "100"
	// short has tests that alter each byte of a stream alter fewer of them.
	short = "-short"
)
