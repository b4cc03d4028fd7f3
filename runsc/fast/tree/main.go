// Command tree makes a copy of gVisor's source with the files of package fast in it: tree SOURCE DIRECTORY.
package main

import (
	"fmt"
	"os"

	"diapause.dev/runsc/fast"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: tree SOURCE DIRECTORY")
		os.Exit(2)
	}
	if err := fast.Tree(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
