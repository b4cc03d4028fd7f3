// Package command holds the commands of the operator's tool. Each asks the agent one thing over the
// local socket, shows progress on standard error and prints its result on standard output, as a
// table or as one JSON document.
//
// Exit codes: 0 done; 1 failure; 2 wrong usage; 3 the object named does not exist; 130 interrupted.
package command
