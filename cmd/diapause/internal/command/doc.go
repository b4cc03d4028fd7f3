// Package command contains the commands of the operator's tool. Each sends one request to the agent over the local
// socket, shows progress on standard error, and prints its result on standard output, as a table or as one JSON
// document.
//
// Exit codes: 0 done; 1 failure; 2 wrong usage; 3 the named object does not exist; 130 interrupted.
package command
