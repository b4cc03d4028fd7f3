package command

import (
	"context"

	"github.com/spf13/cobra"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/cmd/diapause/internal/progress"
	"diapause.dev/cmd/diapause/internal/view"
)

func (t *tool) rotateKeys() *cobra.Command {
	var namespace string
	c := &cobra.Command{
		Use:   "rotate [--namespace NS]",
		Short: "Move encrypted snapshots to the current keys",
		Long: `Move encrypted snapshots to the current keys: those in the spool of this node and those in the store.
Each lineage of snapshots has a data key, which is stored wrapped by its namespace's key. Only the data
keys are wrapped again: no pack and no manifest is written again.

To change a namespace's key, first write the new key above the old one in the namespace's key file, on
all nodes. Then run this command on every node. When it has succeeded everywhere, remove the old key
from the files. You can interrupt the command and run it again.`,
		Args: cobra.NoArgs,
		RunE: t.run(func(ctx context.Context, _ []string) error {
			if err := validNamespace(namespace); err != nil {
				return err
			}
			return t.runRotateKeys(ctx, &localv1.RotateKeysRequest{Namespace: namespace})
		}),
	}
	namespaceFlag(c, &namespace, "only this `namespace` (default: all)")
	return c
}

func (t *tool) runRotateKeys(ctx context.Context, req *localv1.RotateKeysRequest) error {
	ctx, cancel := t.long(ctx)
	defer cancel()
	return t.ask(ctx, func(a localv1.AgentClient) error {
		rotation := view.KeyRotation{Stores: []view.RotatedStore{}}
		display := progress.New(t.err, progress.Objects)
		s, err := a.RotateKeys(ctx, req)
		if err == nil {
			err = receive(s, func(e *localv1.RotateKeysEvent) error {
				if p := e.GetProgress(); p != nil {
					display.Update(p.GetStage(), p.GetDone(), p.GetTotal())
				}
				if r := e.GetResult(); r != nil {
					rotation.Add(r)
				}
				return nil
			})
		}
		display.Close()
		if err != nil {
			return failed("key rotate", "", err)
		}
		return t.print(&rotation)
	})
}
