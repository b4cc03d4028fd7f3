package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/timestamppb"

	"diapause.dev/agent/snapshots"
	localv1 "diapause.dev/api/local/v1"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
	"diapause.dev/cri"
	"diapause.dev/runsc"
)

// Status implements localv1.AgentServer. It asks no sandbox and starts no process: the readiness probe calls it every
// few seconds. That one is not kept waiting by stores of namespaces, and does not depend on them.
func (s *service) Status(ctx context.Context, req *localv1.StatusRequest) (*localv1.StatusResponse, error) {
	resp := &localv1.StatusResponse{
		Version: s.Version, Node: s.Node, Store: s.Store, StateDir: s.StateDir,
		Started: timestamppb.New(s.Started), Checks: s.checks(ctx, req.Probe),
	}
	if f, err := s.Facts(ctx); err == nil {
		resp.Facts = factsProto(f)
	}
	_, resp.Kubelet, _ = s.kubelet.Running() // a check reports the error
	return resp, nil
}

// lowSpace is how much free space a spool should have, in bytes.
const lowSpace = 1 << 30

// checks checks everything that the agent needs for its work.
func (s *service) checks(ctx context.Context, probe bool) []*localv1.Check {
	var out []*localv1.Check
	add := func(name, detail string, err error) {
		if err != nil {
			detail = err.Error()
		}
		out = append(out, &localv1.Check{Name: name, Ok: err == nil, Detail: detail})
	}
	detail, err := s.checkContainerd(ctx)
	add("containerd", detail, err)
	away := err
	detail, err = s.kernel()
	add("kernel", detail, err)
	f, err := s.Facts(ctx)
	add("runsc", describeRunsc(f), err)
	set, err := s.settings(ctx, away)
	add("sleeping pods", describeAsleep(len(s.Sleeps.Waker.All()), f.RunscVersion, set.statsPeriod), nil)
	add("network", describeNetwork(set, err), nil)
	detail, err = s.checkSidecar()
	add("sidecar", detail, err)
	if probe {
		_, err := s.Stores.Own().Get(ctx)
		add("store", s.Stores.Own().Location(), err)
	} else {
		s.checkStores(ctx, add)
	}
	detail, err = s.Backlog.Check()
	add("replication", detail, err)
	detail, err = s.checkSpool()
	add("spool", detail, err)
	if s.Cluster != nil {
		detail = "what no PodSnapshot names is removed once it is old"
		if why := s.Cluster.NotSwept(); why != "" { // no failure: this node does its work
			detail = "attention: " + why
		}
		add("sweep", detail, nil)
	}
	pid, ok, err := s.kubelet.Running()
	detail = "no kubelet: pods are restored by diapause restore"
	if ok {
		detail = fmt.Sprintf("kubelet is process %d: pods are restored by annotation", pid)
	}
	add("kubelet", detail, err)
	return out
}

// storeTime is how long doctor waits for the answer of an open store.
const storeTime = 5 * time.Second

// checkStores checks all stores that the agent knows and those that the cluster names.
func (s *service) checkStores(ctx context.Context, add func(name, detail string, err error)) {
	if err := s.Stores.Learn(ctx); err != nil {
		add("stores of the cluster", "", err)
	}
	all := s.Stores.All()
	details, errs := make([]string, len(all)), make([]error, len(all))
	var checks sync.WaitGroup
	for i, r := range all {
		checks.Go(func() { details[i], errs[i] = checkStore(ctx, r) })
	}
	checks.Wait()
	for i := range all {
		add("store", details[i], errs[i])
	}
}

// checkStore opens a store, and asks whether it is still there.
func checkStore(ctx context.Context, r *snapshots.Remote) (detail string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, storeTime, fmt.Errorf("no answer within %v", storeTime))
	defer cancel()
	st, err := r.Get(ctx)
	if err != nil {
		return "", err
	}
	if err := st.CheckIdentity(ctx); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return "", fmt.Errorf("store %s: %w", r.Location(), err)
	}
	return r.Location() + ", store " + st.Identity(), nil
}

// describeRunsc says which runsc new sandboxes get, and what gVisor's own build is known to lose.
func describeRunsc(f snapshot.Facts) string {
	text := f.RunscVersion + " on " + f.Platform
	if !f.Repaired {
		text += "; attention: gVisor's own build: a restore and a wake end what kubectl exec has left running, a server " +
			"that is bound to its pod's address is out of reach after a restore, and a snapshot that is made while " +
			"clients connect may not be restored: install the build fast"
	}
	return text
}

func (s *service) checkContainerd(ctx context.Context) (string, error) {
	version, err := s.Runtime.Version(ctx)
	if err != nil {
		return "", err
	}
	doubt, err := cri.CheckVersion(version)
	if err != nil {
		return "", err
	}
	pods, err := s.Runtime.IDs(ctx)
	if err != nil {
		return "", err
	}
	detail := fmt.Sprintf("%s: %s, %d pods", s.Containerd, version, len(pods))
	if doubt != "" {
		detail += "; " + doubt
	}
	return detail, nil
}

// settings returns the settings of containerd, unless that has just failed to answer.
func (s *service) settings(ctx context.Context, away error) (settings, error) {
	if away != nil {
		return settings{}, errors.New("see the check of containerd")
	}
	info, err := s.Runtime.Info(ctx)
	if err != nil {
		return settings{}, fmt.Errorf("containerd does not show its configuration: %w", err)
	}
	return parseSettings(info["config"], info["cniconfig"])
}

func (s *service) checkSidecar() (string, error) {
	c, err := runsc.ReadConfig(s.RunscConfig)
	if err != nil {
		return "", err
	}
	path, err := c.SidecarPath()
	if err != nil {
		return "", err
	}
	fi, err := os.Stat(path)
	if err != nil {
		return "", fmt.Errorf("%w: install checkpointgofer there, next to runsc", err)
	}
	if !fi.Mode().IsRegular() || fi.Mode().Perm()&0o111 == 0 {
		return "", fmt.Errorf("%s: not an executable regular file (runsc takes no other)", path)
	}
	return path, nil
}

func (s *service) checkSpool() (string, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(s.Stores.SpoolDir(), &st); err != nil {
		return "", fmt.Errorf("spool %s: %w", s.Stores.SpoolDir(), err)
	}
	free := int64(st.Bavail) * st.Bsize
	if free < lowSpace {
		return "", fmt.Errorf("spool %s has only %d MiB free: checkpoints may fail; make room or lower --cache-size",
			s.Stores.SpoolDir(), free>>20)
	}
	return fmt.Sprintf("%s, %d MiB free", s.Stores.SpoolDir(), free>>20), nil
}

// topTime bounds how long Top may take.
const topTime = 5 * time.Second

// Top implements localv1.AgentServer.
func (s *service) Top(ctx context.Context, _ *localv1.TopRequest) (*localv1.TopResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, topTime)
	defer cancel()
	pods, err := s.Runtime.Pods(ctx)
	if err != nil {
		return nil, toStatus(err)
	}
	resp := &localv1.TopResponse{}
	asleep, waiting := s.Sleeps.Waker.All(), s.Admission.Reasons()
	for _, p := range pods {
		if p.Runtime != cri.RuntimeType || !p.Ready {
			continue
		}
		u := &localv1.SandboxUse{
			Id: p.ID, Pod: p.Name, Namespace: p.Namespace,
			Snapshot: p.Annotations[podsnapshotv1.AnnotationRestoreFrom], Process: int32(p.SandboxPID),
		}
		u.Memory, _ = runsc.MemoryUsage(p.SandboxPID) // 0: the sandbox has just ended
		u.Request = s.underWay(p.ID)
		if m, ok := asleep[p.ID]; ok {
			u.Asleep, u.Ready = timestamppb.New(m.Since), m.Ready
		}
		if why, ok := waiting[p.ID]; ok {
			u.Request = "wake: " + why
		} else if why, ok := s.Sleeps.Unwoken(p.UID); ok && u.Asleep != nil {
			u.Request = "wake: " + why
		}
		resp.Sandboxes = append(resp.Sandboxes, u)
	}
	return resp, nil
}

// underWay describes the request under way for a sandbox.
func (s *service) underWay(sandbox string) string {
	done, total, loading := s.Restores.Loading(sandbox)
	waiting := s.Sandboxes.Locked(sandbox)
	switch {
	case loading && waiting:
		return fmt.Sprintf("load before checkpoint: %d of %d MiB", done>>20, total>>20)
	case loading:
		return fmt.Sprintf("load: %d of %d MiB", done>>20, total>>20)
	case waiting:
		return "checkpoint"
	}
	return ""
}
