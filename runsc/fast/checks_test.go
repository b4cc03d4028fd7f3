//go:build !race

package fast_test

// addressChecks has the compiler check each pointer that is made from an address.
const addressChecks = "-gcflags=all=-d=checkptr"
