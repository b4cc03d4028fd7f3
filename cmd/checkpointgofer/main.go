// Command checkpointgofer connects the sentry to the agent: see diapause.dev/runsc/sidecar. Runsc starts it in place
// of gVisor's own checkpoint gofer. It is installed in gvisor-bin/ next to runsc.
package main

import (
	"fmt"
	"os"

	"diapause.dev/runsc/sidecar"
)

func main() {
	args, err := sidecar.ParseArgs(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "checkpointgofer:", err)
		os.Exit(2)
	}
	args.Alone = true
	log := args.Log()
	if err := sidecar.Run(args, log); err != nil {
		log.Error("checkpoint gofer failed", "error", err)
		os.Exit(1)
	}
}
