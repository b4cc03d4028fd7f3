// Package terminal reads how terminals of the node are set and sets others likewise, and has the file by
// which the shim that saves a sandbox tells the agent of those that the sandbox has.
//
// What a terminal does with each byte, and its size, is kept by the kernel of the node and not by the
// sandbox. A snapshot holds it beside the image.
package terminal
