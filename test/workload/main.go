// Command workload is a program to be frozen and brought back that can tell whether it was done
// well: it checks its own memory, files, processes, timers and connections, and says what it finds
// over HTTP.
//
//	workload serve    --mib N   fill memory; GET /verify, POST /dirty?mib_per_s=R,
//	                            GET /touch?mib=N&pieces=N, POST /loop?on=BOOL, GET /loop?reset=1,
//	                            POST /work?kind=memory|syscalls&threads=N, GET /work?reset=1,
//	                            POST /own?to=HOST:PORT, POST /say?text=TEXT
//	workload rest     --mib N   fill memory, and do nothing between requests; GET /verify, POST /count, GET /socket
//	workload order    --mib N   write memory in order at full speed; GET /verify, POST /freeze?on=BOOL
//	workload fidelity           everything else that a process can have; GET /report
//
// Every mode answers GET /state and GET /gap?reset=1 at --listen, and exits with 42 on SIGTERM. Gaps are measured from
// the first question for them on.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"runtime/pprof"
	"syscall"
	"time"

	"diapause.dev/test/workload/internal/fidelity"
	"diapause.dev/test/workload/internal/memory"
)

// exitTerminated is the exit code after SIGTERM.
const exitTerminated = 42

// maxMiB bounds the memory that may be asked for.
const maxMiB = 64 << 10

type options struct {
	listen     string
	mib        int
	content    memory.Content // of the mode rest
	dir, tmpfs string
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == fidelity.ChildMode {
		os.Exit(fidelity.Child(os.Args[2:]))
	}
	mode, o, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "workload:", err)
		os.Exit(2)
	}
	// A thread that waits in the kernel and the meter of gaps shall not wait for a turn.
	runtime.GOMAXPROCS(runtime.NumCPU() + 2)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer context.AfterFunc(ctx, func() { time.AfterFunc(patience, dump) })()
	err = mode(ctx, o)
	terminated := ctx.Err() != nil
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "workload:", err)
		os.Exit(1)
	case terminated:
		os.Exit(exitTerminated)
	}
}

// patience is how long the end may take before the program says what it waits for.
const patience = 10 * time.Second

// dump writes where every goroutine stands on standard error.
func dump() {
	fmt.Fprintf(os.Stderr, "workload: not ended %v after SIGTERM\n", patience)
	_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2) // there is nobody else to tell
}

func parse(args []string) (func(context.Context, options) error, options, error) {
	modes := map[string]func(context.Context, options) error{
		"serve": serve, "rest": rest, "order": inOrder, "fidelity": faithful,
	}
	var o options
	if len(args) == 0 || modes[args[0]] == nil {
		return nil, o, fmt.Errorf("want a mode: serve, rest, order or fidelity")
	}
	f := flag.NewFlagSet("workload "+args[0], flag.ContinueOnError)
	f.StringVar(&o.listen, "listen", ":8080", "`address` to answer at")
	f.IntVar(&o.mib, "mib", 64, "memory to fill, in `MiB`")
	f.Uint64Var(&o.content.Seed, "seed", seed, "`number` from which the mode rest makes its memory")
	f.IntVar(&o.content.Random, "random", memory.Half, "random `bytes` in each page of the mode rest")
	f.StringVar(&o.dir, "dir", "/var/tmp/fidelity", "`directory` for files on the root file system")
	f.StringVar(&o.tmpfs, "tmpfs", "/dev/shm", "`directory` on a tmpfs")
	if err := f.Parse(args[1:]); err != nil {
		return nil, o, err
	}
	if f.NArg() > 0 || o.mib < 1 || o.mib > maxMiB {
		return nil, o, fmt.Errorf("want flags only, and --mib of 1 to %d", maxMiB)
	}
	return modes[args[0]], o, nil
}
