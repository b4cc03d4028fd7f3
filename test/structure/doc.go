// Package structure has tests of how the repository is built: which package may import which, how large packages and
// types may become, that the files of a package call each other in one direction, and that packages keep no state of
// their own. What does not hold yet is listed, and each list may only become shorter.
package structure
