// Package structure has tests of how the repository is built: which package may import which, how large packages and
// types may become, that the files of a package call each other in one direction, that packages keep no state of their
// own, and that there is one way to log, to end, to begin a context, to name a kind of error and to tell an owner
// something. What does not hold yet is listed, and each list may only become shorter.
package structure
