package command

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/cmd/diapause/internal/progress"
	"diapause.dev/cmd/diapause/internal/view"
)

func (t *tool) verify() *cobra.Command {
	var namespace string
	var readData bool
	c := &cobra.Command{
		Use:   "verify [--read-data] [--namespace NS] [SNAPSHOT...]",
		Short: "Check that snapshots are whole",
		Long: `Check that snapshots are whole: the manifest's digest and that every pack it names is there;
with --read-data every chunk is read and its digest compared. Without a SNAPSHOT all are checked.`,
		ValidArgsFunction: t.completeSnapshots,
		RunE: t.run(func(ctx context.Context, args []string) error {
			requests, err := verifyRequests(args, namespace, readData)
			if err != nil {
				return err
			}
			return t.runVerify(ctx, requests)
		}),
	}
	c.Flags().BoolVar(&readData, "read-data", false, "read every chunk")
	namespaceFlag(c, &namespace, "only this `namespace` (default: all, and \"default\" for a name)")
	return c
}

// verifyRequests makes one request for each snapshot, or one for all.
func verifyRequests(args []string, namespace string, readData bool) ([]*localv1.VerifyRequest, error) {
	if len(args) == 0 {
		return []*localv1.VerifyRequest{{Namespace: namespace, ReadData: readData}}, validNamespace(namespace)
	}
	keys, err := parseKeys(args, namespace)
	var requests []*localv1.VerifyRequest
	for _, k := range keys {
		requests = append(requests, &localv1.VerifyRequest{Namespace: k.Namespace, Snapshot: k.Name, ReadData: readData})
	}
	return requests, err
}

func (t *tool) runVerify(ctx context.Context, requests []*localv1.VerifyRequest) error {
	ctx, cancel := t.long(ctx)
	defer cancel()
	result := view.Verification{OK: true, Snapshots: []view.Verified{}}
	var errs []error
	err := t.ask(ctx, func(a localv1.AgentClient) error {
		display := progress.New(t.err, progress.Bytes)
		defer display.Close()
		for _, req := range requests {
			if err := verifyOne(ctx, a, req, display, &result); err != nil {
				errs, result.OK = append(errs, err), false
			}
			if ctx.Err() != nil {
				break
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := t.print(&result); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, damage(result))...)
}

func verifyOne(ctx context.Context, a localv1.AgentClient, req *localv1.VerifyRequest, d progress.Display, into *view.Verification) error {
	s, err := a.Verify(ctx, req)
	if err == nil {
		err = receive(s, func(e *localv1.VerifyEvent) error {
			if p := e.GetProgress(); p != nil {
				d.Update(p.GetStage(), p.GetDone(), p.GetTotal())
			}
			if r := e.GetResult(); r != nil {
				into.Add(r)
			}
			return nil
		})
	}
	object := req.Namespace
	if req.Snapshot != "" {
		object += "/" + req.Snapshot
	}
	return failed("verify", object, err)
}

// damage is the error of a verification that found some; nil when all is well.
func damage(v view.Verification) error {
	bad := 0
	for _, s := range v.Snapshots {
		if !s.OK {
			bad++
		}
	}
	if bad == 0 {
		return nil
	}
	return fmt.Errorf("verify: %d of %d snapshots are damaged: remove them with \"diapause rm\"", bad, len(v.Snapshots))
}
