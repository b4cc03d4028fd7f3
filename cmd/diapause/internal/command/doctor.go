package command

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/cmd/diapause/internal/view"
)

// nodeCommands are the commands about this node and its agent.
type nodeCommands struct {
	client  *client
	console *console
	run     runner
}

func (n *nodeCommands) doctor() *cobra.Command {
	var probe bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check this node: the socket, the agent, containerd, the shim, runsc, the store",
		Long: "Check this node, from the socket to the store. Each check that fails says what to do. If any " +
			"fails, the exit code is 1. An attention is no failure: it says what the node cannot do, or does " +
			"at a high cost. Each store is asked whether it is still the one that the agent has opened.",
		Args: cobra.NoArgs,
		RunE: n.run(func(ctx context.Context, _ []string) error {
			h := n.examine(ctx, probe)
			if err := n.console.print(h); err != nil {
				return err
			}
			if !h.OK {
				return errors.New("doctor: some checks failed: see the lines that say FAIL")
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&probe, "probe", false,
		"for a readiness probe: of all stores only the agent's own counts, and none that is open is asked")
	return cmd
}

// examine checks from the outside in: first the socket, then what the agent reports.
func (n *nodeCommands) examine(ctx context.Context, probe bool) *view.Health {
	h := &view.Health{OK: true}
	h.Add(checkUser(os.Geteuid()))
	h.Add(checkSocket(n.client.socket))
	ctx, cancel := n.client.query(ctx)
	defer cancel()
	var status *localv1.StatusResponse
	err := n.client.ask(ctx, func(a localv1.AgentClient) (err error) {
		status, err = a.Status(ctx, &localv1.StatusRequest{Probe: probe})
		return failed("status", "", err)
	})
	h.Add(checkAgent(status, err))
	for _, c := range status.GetChecks() {
		h.Add(view.Check{Name: c.GetName(), OK: c.GetOk(), Detail: c.GetDetail()})
	}
	return h
}

func checkUser(uid int) view.Check {
	c := view.Check{Name: "user", OK: uid == 0, Detail: "root"}
	if !c.OK {
		c.Detail = fmt.Sprintf("user id %d: the agent answers only root: run this command as root", uid)
	}
	return c
}

func checkAgent(s *localv1.StatusResponse, err error) view.Check {
	if err != nil {
		return view.Check{Name: "agent", Detail: strings.ReplaceAll(err.Error(), "\n", ": ")}
	}
	return view.Check{
		Name: "agent", OK: true,
		Detail: fmt.Sprintf("version %s on %s, store %s", s.GetVersion(), s.GetNode(), s.GetStore()),
	}
}

// checkSocket checks the socket's file: it must be a socket that only root can open.
func checkSocket(path string) view.Check {
	c := view.Check{Name: "socket"}
	i, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.Detail = path + ` does not exist: start the agent with "diapause-agent", or name its socket with --socket`
	case err != nil:
		c.Detail = err.Error()
	case i.Mode().Type() != fs.ModeSocket:
		c.Detail = fmt.Sprintf("%s is not a socket (%s): remove it and start the agent again", path, i.Mode())
	case i.Mode().Perm()&0o077 != 0:
		c.Detail = fmt.Sprintf("%s has mode %04o, so that users other than its owner may open it: run chmod 600 on it", path,
			i.Mode().Perm())
	case ownedByOther(i):
		c.Detail = path + " belongs to another user: check who started the agent"
	default:
		c.OK, c.Detail = true, fmt.Sprintf("%s, mode %04o", path, i.Mode().Perm())
	}
	return c
}

func ownedByOther(i fs.FileInfo) bool {
	s, ok := i.Sys().(*syscall.Stat_t)
	return ok && int(s.Uid) != os.Geteuid() && s.Uid != 0
}
