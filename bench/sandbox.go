package main

import (
	"context"
	"errors"
	"fmt"

	localv1 "diapause.dev/api/local/v1"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// imagePath finds out where a sandbox is restored from, while runsc creates it.
type imagePath func(ctx context.Context) (string, error)

// fromFiles is the image path of stock gVisor.
func fromFiles(dir string) imagePath {
	return func(context.Context) (string, error) { return dir, nil }
}

// fromAgent asks the agent as the shim does. The agent looks now and again whether the sandbox still
// lives, so it is told of a pod that does.
func (r *restores) fromAgent(ctx context.Context) (string, error) {
	resp, err := r.shim.AskRestore(ctx, &localv1.AskRestoreRequest{
		SandboxId:           r.witness.ID,
		ContainerdNamespace: "k8s.io",
		Annotations: map[string]string{
			podsnapshotv1.AnnotationRestoreFrom:      namespace + "/" + r.snapshot,
			podsnapshotv1.AnnotationOnRestoreFailure: podsnapshotv1.OnRestoreFailureFail,
			"io.kubernetes.cri.sandbox-namespace":    namespace,
			"io.kubernetes.cri.sandbox-name":         r.witness.Name,
		},
	})
	if err != nil {
		return "", fmt.Errorf("agent: %w", err)
	}
	if resp.Decision != localv1.AskRestoreResponse_RESTORE {
		return "", fmt.Errorf("agent: %v instead of a restore: %s", resp.Decision, resp.Reason)
	}
	return resp.ImagePath, nil
}

// sandbox is a pod's sandbox with two containers, started by runsc alone.
type sandbox struct {
	*node
	root, app string // containers
	bundle    *bundle
}

// newSandbox writes the bundle for a sandbox of that name in a network namespace.
func (n *node) newSandbox(b *bundle, id, network string) (*sandbox, error) {
	s := &sandbox{node: n, root: id, app: id + "-app", bundle: b}
	return s, b.write(s.root, network)
}

// start does what the shim has runsc do for a pod. from is nil for a cold start.
func (s *sandbox) start(ctx context.Context, from imagePath) error {
	type answer struct {
		path string
		err  error
	}
	answers := make(chan answer, 1)
	if from != nil {
		go func() {
			path, err := from(ctx)
			answers <- answer{path, err}
		}()
	}
	err := s.run(ctx, "create", "--bundle", s.bundle.rootDir(), s.root)
	begin := []string{"start", s.root}
	if from != nil {
		a := <-answers
		err = errors.Join(err, a.err)
		begin = []string{"restore", "--detach", "--background", "--image-path=" + a.path, s.root}
	}
	if err != nil {
		return err
	}
	for _, args := range [][]string{begin, {"create", "--bundle", s.bundle.appDir(), s.app}, {"start", s.app}} {
		if err := s.run(ctx, args...); err != nil {
			return err
		}
	}
	return nil
}

func (s *sandbox) run(ctx context.Context, args ...string) error {
	return s.runsc(ctx, ownRoot, args...)
}

// exec runs a program in the app's container. One that fails is an error.
func (s *sandbox) exec(ctx context.Context, command ...string) error {
	return s.run(ctx, append([]string{"exec", s.app}, command...)...)
}

func (s *sandbox) remove(ctx context.Context) error {
	return errors.Join(s.run(ctx, "delete", "--force", s.app), s.run(ctx, "delete", "--force", s.root))
}
