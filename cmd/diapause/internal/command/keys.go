package command

import (
	"context"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/cmd/diapause/internal/progress"
	"diapause.dev/cmd/diapause/internal/view"
)

// keyCommands are the commands about the keys that snapshots are encrypted with.
type keyCommands struct {
	client  *client
	console *console
	run     runner
}

func (k *keyCommands) rotateKeys() *cobra.Command {
	var namespace string
	c := &cobra.Command{
		Use:   "rotate [--namespace NS]",
		Short: "Move encrypted snapshots to the current keys",
		Long: `Move encrypted snapshots to the current keys: those in the spool of this node and those in the store.
Each lineage of snapshots has a data key, which is stored wrapped by its namespace's key. Only the data
keys are wrapped again: no pack and no manifest is written again. Anyone who had the old key and an old
copy of the store can still read old snapshots. The next snapshot of each pod gets a data key of its own, and
is stored whole.

To change a namespace's key, first write the new key above the old one in the namespace's key file, on
all nodes. Then run this command on every node. Where agents may not overwrite objects of a bucket, DENIED
counts the data keys that are left: run "diapause-agent rotate-keys" in the controller's container after
that. When "diapause key check" finds no former key anywhere, remove the old key from the files. You can
interrupt the command and run it again.`,
		Args: cobra.NoArgs,
		RunE: k.run(func(ctx context.Context, _ []string) error {
			if err := validNamespace(namespace); err != nil {
				return err
			}
			return k.runKeys(ctx, "key rotate", localv1.AgentClient.RotateKeys, &view.KeyRotation{Stores: []view.RotatedStore{}},
				&localv1.RotateKeysRequest{Namespace: namespace})
		}),
	}
	namespaceFlag(c, &namespace, "only this `namespace` (default: all)")
	return c
}

func (k *keyCommands) checkKeys() *cobra.Command {
	var namespace string
	c := &cobra.Command{
		Use:   "check [--namespace NS]",
		Short: "Check that the configured keys can open what is stored",
		Long: `Check that the configured keys can open all encrypted snapshots: those in the spool of this node and those
in the store. The command unwraps every data key and changes nothing. It fails if one cannot be unwrapped,
and names it.

FORMER KEY counts the data keys that "diapause key rotate" would wrap with the current key. If there are none
on any node, you can remove the former key from the files.

If a key is lost, everything that it encrypts is lost: keep a copy of the keys elsewhere.`,
		Args: cobra.NoArgs,
		RunE: k.run(func(ctx context.Context, _ []string) error {
			if err := validNamespace(namespace); err != nil {
				return err
			}
			return k.runKeys(ctx, "key check", localv1.AgentClient.CheckKeys, &view.KeyCheck{Stores: []view.CheckedStore{}},
				&localv1.RotateKeysRequest{Namespace: namespace})
		}),
	}
	namespaceFlag(c, &namespace, "only this `namespace` (default: all)")
	return c
}

// keysOf is the method of the agent that rotates keys, or the one that checks them.
type keysOf func(localv1.AgentClient, context.Context, *localv1.RotateKeysRequest, ...grpc.CallOption,
) (grpc.ServerStreamingClient[localv1.RotateKeysEvent], error)

// keysResult is the result of a command about keys.
type keysResult interface {
	view.Document
	Add(r *localv1.RotateKeysResult)
}

func (k *keyCommands) runKeys(ctx context.Context, name string, call keysOf, result keysResult,
	req *localv1.RotateKeysRequest,
) error {
	ctx, cancel := k.client.long(ctx)
	defer cancel()
	return k.client.ask(ctx, func(a localv1.AgentClient) error {
		display := progress.New(k.console.err, progress.Objects)
		s, err := call(a, ctx, req)
		if err == nil {
			err = receive(s, func(e *localv1.RotateKeysEvent) error {
				if p := e.GetProgress(); p != nil {
					display.Update(p.GetStage(), p.GetDone(), p.GetTotal())
				}
				if r := e.GetResult(); r != nil {
					result.Add(r)
				}
				return nil
			})
		}
		display.Close()
		if err != nil {
			return failed(name, "", err)
		}
		return k.console.print(result)
	})
}
