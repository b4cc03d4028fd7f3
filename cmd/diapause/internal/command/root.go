package command

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"diapause.dev/cmd/diapause/internal/view"
	"diapause.dev/cmd/internal/usage"
)

// DefaultSocket is where the agent listens by default.
const DefaultSocket = "/run/diapause/agent.sock"

// tool is the program: its command line, and what its commands share.
type tool struct {
	client  client
	console console
	running bool // the command line was understood
}

// runner turns what a command does into what cobra calls once the command line is understood.
type runner func(f func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error

// Run runs the tool with a whole command line, with the name of the program, and returns the exit code.
func Run(ctx context.Context, args []string, out, errOut io.Writer) int {
	t := &tool{console: console{out: out, err: errOut, format: view.Table}}
	root := t.root()
	root.SetArgs(args[1:])
	err := root.ExecuteContext(ctx)
	if err != nil && !t.running {
		err = usage.Error{Err: fmt.Errorf("%w\nsee %q", err, root.DisplayName()+" --help")}
	}
	if err != nil {
		report(errOut, err)
		err = t.console.endJSON(args, err)
	}
	return exitCode(err)
}

func (t *tool) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "diapause",
		Short: "Checkpoint and restore running gVisor pods",
		Long: `Checkpoint and restore running gVisor pods.

The commands ask this node's agent, over its local socket (root only).

Exit codes: 0 done, 1 failure, 2 wrong usage, 3 the named object does not exist, 130 interrupted.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetOut(t.console.out)
	root.SetErr(t.console.err)
	t.flags(root)
	pods := &podCommands{client: &t.client, console: &t.console, run: t.run}
	snapshots := &snapshotCommands{client: &t.client, console: &t.console, run: t.run}
	store := &storeCommands{client: &t.client, console: &t.console, run: t.run}
	keys := &keyCommands{client: &t.client, console: &t.console, run: t.run}
	node := &nodeCommands{client: &t.client, console: &t.console, run: t.run}
	root.AddCommand(pods.checkpoint(), snapshots.restore(), pods.sleep(), pods.wake(),
		snapshots.list(), snapshots.inspect(), snapshots.remove(), snapshots.verify(), store.sweep(),
		group("store", "Look at the spool and the store as a whole", store.statStore()),
		group("key", "Manage the keys that snapshots are encrypted with", keys.rotateKeys(), keys.checkKeys()),
		pods.top(), pods.traffic(), node.doctor(), node.version())
	return root
}

func (t *tool) flags(root *cobra.Command) {
	socket := os.Getenv("DIAPAUSE_SOCKET")
	if socket == "" {
		socket = DefaultSocket
	}
	f := root.PersistentFlags()
	f.StringVar(&t.client.socket, "socket", socket, "the agent's local `socket` (environment: DIAPAUSE_SOCKET)")
	f.VarP(&t.console.format, "output", "o", "how to print the result")
	f.DurationVar(&t.client.timeout, "timeout", 0,
		"give up after this `time` (default 1m for queries, none for checkpoint, restore, sleep, verify, gc, store and key)")
	_ = root.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions([]string{"table", "json"}, cobra.ShellCompDirectiveNoFileComp))
}

// group returns a command that only contains other commands.
func group(use, short string, below ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use:                   use,
		Short:                 short,
		Args:                  cobra.NoArgs, // anything else is an unknown command
		RunE:                  func(c *cobra.Command, _ []string) error { return c.Help() },
		DisableFlagsInUseLine: true,
	}
	c.AddCommand(below...)
	return c
}

// run marks where a wrong command line ends and a failure of the command itself begins.
func (t *tool) run(f func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(c *cobra.Command, args []string) error {
		t.running = true
		if t.client.timeout < 0 {
			return usage.Error{Err: fmt.Errorf("--timeout %s: want a time greater than 0", t.client.timeout)}
		}
		return f(c.Context(), args)
	}
}
