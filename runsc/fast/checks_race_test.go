//go:build race

package fast_test

// addressChecks also has the compiler check each pointer that is made from an address.
const addressChecks = "-race"
