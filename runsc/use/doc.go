// Package use is how shims tell the agent who uses their pods: by files in a directory beside the agent's socket.
// One, of the sandbox's name, is touched while a session is open. Another has how many packets count,
// and a third who has sent them.
package use
