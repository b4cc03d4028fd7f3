// Package terminal reads the settings of the node's terminals, and applies them to others. It also writes and
// reads the file in which a shim that saves a sandbox tells the agent about the sandbox's terminals.
//
// The node's kernel, not the sandbox, keeps a terminal's size and what the terminal does with each byte. So a
// snapshot holds them beside the image.
package terminal
