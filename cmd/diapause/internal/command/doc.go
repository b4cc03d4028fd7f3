// Package command contains the commands of the operator's tool. Each sends one request to the agent over the local
// socket, shows progress on standard error, and prints its result on standard output, as a table or as one JSON
// document.
//
// The commands of one subject are methods of one type, such as podCommands. All of them ask by a client, and print on a
// console. Only tool knows them all.
//
// Exit codes: 0 done; 1 failure; 2 wrong usage; 3 the named object does not exist; 130 interrupted.
package command
