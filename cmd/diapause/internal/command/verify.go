package command

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/spf13/cobra"

	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/cmd/diapause/internal/progress"
	"diapause.dev/cmd/diapause/internal/view"
	"diapause.dev/cmd/internal/usage"
	"diapause.dev/storage"
)

func (s *snapshotCommands) verify() *cobra.Command {
	var namespace, subset string
	var readData, repair bool
	c := &cobra.Command{
		Use:   "verify [--read-data | --read-data-subset=n/t | --repair] [--namespace NS] [SNAPSHOT...]",
		Short: "Check that snapshots are whole",
		Long: `Check that snapshots are whole: that the manifest's digest is right, and that every pack it names
exists. With --read-data, also read every chunk and compare its digest. Without a SNAPSHOT, check all.
If a snapshot is damaged, the exit code is 1.

It also says who has signed each snapshot: the fingerprint of the public key, as it is in the logs and
errors of diapause-agent. A snapshot that is not signed, or by a key that the agent does not trust, is
no damage.

--read-data-subset=n/t reads the n-th of t parts of the packs: t runs, one for each part, read all
of them once.

--repair reads everything. It replaces what is damaged on this node or in a store by a sound copy from
the other. What has no sound copy stays damaged. The snapshots that need it are named, and cannot be
restored anywhere: remove them. If there are any, the exit code is 1.`,
		ValidArgsFunction: s.completeSnapshots,
		RunE: s.run(func(ctx context.Context, args []string) error {
			what := &localv1.VerifyRequest{Namespace: namespace, ReadData: readData || repair, Repair: repair}
			if err := parseSubset(subset, what); err != nil {
				return err
			}
			if repair && subset != "" {
				return usage.Error{Err: errors.New("--repair reads all packs: leave --read-data-subset out")}
			}
			requests, err := verifyRequests(args, what)
			if err != nil {
				return err
			}
			return s.runVerify(ctx, requests)
		}),
	}
	c.Flags().BoolVar(&readData, "read-data", false, "read every chunk")
	c.Flags().BoolVar(&repair, "repair", false, "read every chunk, and replace what is damaged by a sound copy")
	c.Flags().StringVar(&subset, "read-data-subset", "", "read the `n/t`-th part of the packs")
	namespaceFlag(c, &namespace, "only this `namespace` (default: all, and \"default\" for a name)")
	return c
}

// parseSubset writes the value of --read-data-subset, if any, into a request.
func parseSubset(text string, into *localv1.VerifyRequest) error {
	if text == "" {
		return nil
	}
	subset, err := storage.ParseSubset(text)
	if err != nil {
		return usage.Error{Err: fmt.Errorf("--read-data-subset: %w", err)}
	}
	if subset.Of > math.MaxInt32 {
		return usage.Error{Err: fmt.Errorf("--read-data-subset %s: too many parts", text)}
	}
	into.ReadData, into.Part, into.Parts = true, int32(subset.Part), int32(subset.Of)
	return nil
}

// verifyRequests makes one request for each snapshot, or one for all. What holds the other fields of the requests.
func verifyRequests(args []string, what *localv1.VerifyRequest) ([]*localv1.VerifyRequest, error) {
	if len(args) == 0 {
		return []*localv1.VerifyRequest{what}, validNamespace(what.Namespace)
	}
	keys, err := parseKeys(args, what.Namespace)
	var requests []*localv1.VerifyRequest
	for _, k := range keys {
		requests = append(requests, &localv1.VerifyRequest{
			Namespace: k.Namespace, Snapshot: k.Name, ReadData: what.ReadData, Part: what.Part, Parts: what.Parts,
			Repair: what.Repair,
		})
	}
	return requests, err
}

func (s *snapshotCommands) runVerify(ctx context.Context, requests []*localv1.VerifyRequest) error {
	ctx, cancel := s.client.long(ctx)
	defer cancel()
	result := view.Verification{OK: true, Snapshots: []view.Verified{}}
	var errs []error
	err := s.client.ask(ctx, func(a localv1.AgentClient) error {
		display := progress.New(s.console.err, progress.Bytes)
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
	if err := s.console.print(&result); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(append(errs, damage(result, requests[0].GetRepair()))...)
}

func verifyOne(ctx context.Context, a localv1.AgentClient, req *localv1.VerifyRequest, d progress.Display,
	into *view.Verification,
) error {
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

// damage returns the error of a verification that has found damage, or nil.
func damage(v view.Verification, repaired bool) error {
	todo := "try \"diapause verify --repair\""
	if repaired {
		todo = "no sound copy of what they need exists; remove them with \"diapause rm\""
	}
	bad := 0
	for _, s := range v.Snapshots {
		if !s.OK {
			bad++
		}
	}
	if bad == 0 {
		return nil
	}
	return fmt.Errorf("verify: %d of %d snapshots are damaged: %s", bad, len(v.Snapshots), todo)
}
