package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"diapause.dev/cmd/diapause/internal/view"
	"diapause.dev/cmd/internal/table"
	"diapause.dev/cmd/internal/usage"
)

// DefaultSocket is where the agent listens by default.
const DefaultSocket = "/run/diapause/agent.sock"

// queryTimeout is the default time limit for queries, which the agent answers at once.
const queryTimeout = time.Minute

// tool holds what the commands share.
type tool struct {
	out, err io.Writer
	socket   string
	format   view.Format
	timeout  time.Duration // 0: queryTimeout for queries, none for long operations
	running  bool          // the command line was understood
	printed  bool          // a result was printed
}

// Run runs the tool with a whole command line, with the name of the program, and returns the exit code.
func Run(ctx context.Context, args []string, out, errOut io.Writer) int {
	t := &tool{out: out, err: errOut, format: view.Table}
	root := t.root()
	root.SetArgs(args[1:])
	err := root.ExecuteContext(ctx)
	if err != nil && !t.running {
		err = usage.Error{Err: fmt.Errorf("%w\nsee %q", err, root.DisplayName()+" --help")}
	}
	if err != nil {
		report(errOut, err)
		err = t.endJSON(args, err)
	}
	return exitCode(err)
}

// endJSON prints why there is no result, as JSON, if the command line asks for JSON.
func (t *tool) endJSON(args []string, err error) error {
	if t.printed || t.format != view.JSON && !wantsJSON(args) {
		return err
	}
	if e := view.Format(view.JSON).Print(t.out, failure(err)); e != nil {
		return errors.Join(err, e)
	}
	return err
}

// wantsJSON reports whether a command line that could not be understood asks for JSON.
func wantsJSON(args []string) bool {
	line := " " + strings.Join(args, " ") + " "
	return slices.ContainsFunc([]string{" -o json ", " -o=json ", " -ojson ", " --output json ", " --output=json "},
		func(s string) bool {
			return strings.Contains(line, s)
		})
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
	root.SetOut(t.out)
	root.SetErr(t.err)
	t.flags(root)
	root.AddCommand(t.checkpoint(), t.restore(), t.sleep(), t.wake(),
		t.list(), t.inspect(), t.remove(), t.verify(), t.sweep(),
		group("store", "Look at the spool and the store as a whole", t.statStore()),
		group("key", "Manage the keys that snapshots are encrypted with", t.rotateKeys(), t.checkKeys()),
		t.top(), t.traffic(), t.doctor(), t.version())
	return root
}

func (t *tool) flags(root *cobra.Command) {
	socket := os.Getenv("DIAPAUSE_SOCKET")
	if socket == "" {
		socket = DefaultSocket
	}
	f := root.PersistentFlags()
	f.StringVar(&t.socket, "socket", socket, "the agent's local `socket` (environment: DIAPAUSE_SOCKET)")
	f.VarP(&t.format, "output", "o", "how to print the result")
	f.DurationVar(&t.timeout, "timeout", 0,
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
		if t.timeout < 0 {
			return usage.Error{Err: fmt.Errorf("--timeout %s: want a time greater than 0", t.timeout)}
		}
		return f(c.Context(), args)
	}
}

// query returns the context for a query, which the agent answers at once.
func (t *tool) query(ctx context.Context) (context.Context, context.CancelFunc) {
	return t.within(ctx, queryTimeout)
}

// within returns a context that ends after d, unless --timeout says otherwise.
func (t *tool) within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if t.timeout > 0 {
		d = t.timeout
	}
	return context.WithTimeout(ctx, d)
}

// long returns the context for an operation without a time limit, unless --timeout sets one.
func (t *tool) long(ctx context.Context) (context.Context, context.CancelFunc) {
	if t.timeout > 0 {
		return context.WithTimeout(ctx, t.timeout)
	}
	return context.WithCancel(ctx)
}

func (t *tool) print(d view.Document) error {
	t.printed = true
	return t.format.Print(t.out, d)
}

// report writes every line of an error, prefixed with the tool's name.
func report(w io.Writer, err error) {
	for line := range strings.SplitSeq(table.Clean(err.Error()), "\n") {
		fmt.Fprintln(w, "diapause: "+line)
	}
}
