package bed

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"

	"diapause.dev/test/tools"
)

// variable is the environment variable that hands the ticket to the next process.
const variable = "DIAPAUSE_BED"

// The roles of the processes of a bed; outer has no ticket.
const (
	roleWarden = "warden"
	roleInit   = "init"
	roleInside = "inside"
	roleNode   = "node"
)

// ticket tells a process of a bed what it is to be.
type ticket struct {
	Role string
	Bin  tools.Bin
	// Name is the bed's own: of its scratch directory and of its cgroup. For a
	// node it is the node's.
	Name    string
	Scratch string
	// IP is the address of the bed, or of the node.
	IP string
}

// here is set inside a bed.
var here *ticket

// Main runs the tests of m inside a bed, and exits. The extras are built first. A fuzz target runs
// without a bed: into one, the fuzzer's workers could not be followed.
func Main(m *testing.M, extras ...tools.Extra) {
	if fuzzing() {
		os.Exit(m.Run())
	}
	MainWith(func() (int, error) { return m.Run(), nil }, extras...)
}

// fuzzing reports whether the program was started to fuzz, or by a fuzzer as its worker.
func fuzzing() bool {
	flag.Parse()
	return flag.Lookup("test.fuzz").Value.String() != "" || flag.Lookup("test.fuzzworker").Value.String() == "true"
}

// MainWith calls run, which runs the tests, inside a bed, and exits with the code that
// it returns. An error is said on standard error, and is no success. The extras are
// built first.
func MainWith(run func() (int, error), extras ...tools.Extra) {
	Enter(extras...)
	code, err := run()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// SetRunsc has the beds of this program have another program as runsc, unless [RunscVariable] names one. Call it before
// Enter.
func SetRunsc(name string) {
	if os.Getenv(RunscVariable) == "" {
		os.Setenv(RunscVariable, name)
	}
}

// Enter returns inside a bed. In the process that calls it first it does not
// return: that one builds the tools and the extras, waits until the program has run inside,
// and exits with its status. What is missing on the machine is said on standard
// error, with exit status 1.
func Enter(extras ...tools.Extra) {
	code, err := enter(extras)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bed:", err)
		code = max(code, 1)
	}
	if err != nil || here == nil {
		os.Exit(code)
	}
}

// Inside reports whether this process is one of a bed's already. The one that calls [Enter] first is not: it has the
// machine's network, which nothing in a bed has.
func Inside() bool {
	_, ok := os.LookupEnv(variable)
	return ok || here != nil
}

// enter plays the role that the environment names. Inside it sets here and returns.
func enter(extras []tools.Extra) (int, error) {
	value, ok := os.LookupEnv(variable)
	if !ok {
		return outer(extras)
	}
	var t ticket
	if err := json.Unmarshal([]byte(value), &t); err != nil {
		return 1, fmt.Errorf("%s: %w", variable, err)
	}
	switch t.Role {
	case roleWarden:
		return t.warden()
	case roleInit:
		return t.init()
	case roleInside:
		return 0, t.settle()
	case roleNode:
		return t.serve()
	}
	return 1, fmt.Errorf("%s: no such role: %q", variable, t.Role)
}

// outer prepares what needs the machine and its network, and leaves the rest to
// the warden, which sees by the pipe's end when this process is gone.
func outer(extras []tools.Extra) (int, error) {
	if os.Geteuid() != 0 {
		return 1, errors.New("a test bed needs root, for namespaces, mounts and cgroups; run this as root")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	if err := tools.Packages(ctx, extras...); err != nil {
		return 1, err
	}
	bin, err := tools.Build(ctx, extras...)
	if err != nil {
		return 1, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return 1, err
	}
	defer w.Close()
	cmd, err := ticket{Role: roleWarden, Bin: bin}.command()
	if err != nil {
		return 1, err
	}
	cmd.ExtraFiles = []*os.File{r}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a Ctrl-C reaches only outer
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	r.Close()
	defer context.AfterFunc(ctx, func() { w.Close() })()
	return status(cmd.Wait())
}

// command is this program again, with the ticket.
func (t ticket) command() (*exec.Cmd, error) {
	value, err := json.Marshal(t)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), variable+"="+string(value))
	return cmd, nil
}

// status turns what Wait returned into an exit status.
func status(err error) (int, error) {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return 0, err
	}
	return exitCode(exit.Sys().(syscall.WaitStatus)), nil
}

// exitCode is the exit status of a shell for a process that ended so.
func exitCode(s syscall.WaitStatus) int {
	if s.Signaled() {
		return 128 + int(s.Signal())
	}
	return s.ExitStatus()
}
