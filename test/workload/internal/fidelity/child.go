package fidelity

import (
	"fmt"
	"net"
	"os"
	"strconv"
)

// ChildMode is the first argument of this program when it runs as a part of a check.
const ChildMode = "fidelity-child"

// Child runs the part of a check that args name and returns the exit code.
func Child(args []string) int {
	if len(args) == 2 && args[0] == "exit" {
		code, err := strconv.Atoi(args[1])
		if err == nil {
			return code
		}
	}
	if err := child(args); err != nil {
		fmt.Fprintln(os.Stderr, "workload: child:", args, err)
	}
	return 1 // no other part ends by itself
}

func child(args []string) error {
	switch {
	case len(args) == 1 && args[0] == "pipe":
		return echo(os.NewFile(3, "in"), os.NewFile(4, "out"))
	case len(args) == 1 && args[0] == "socket":
		f := os.NewFile(3, "socket")
		return echo(f, f)
	case len(args) == 3 && args[0] == "dial":
		c, err := net.Dial(args[1], args[2])
		if err != nil {
			return err
		}
		return echo(c, c)
	case len(args) == 1 && args[0] == "futex":
		return childBaton(os.NewFile(3, "shared"))
	}
	return fmt.Errorf("unknown part")
}
