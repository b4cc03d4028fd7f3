package kube

import (
	"context"
	"time"

	"diapause.dev/agent"
	"diapause.dev/agent/admission"
	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/journal"
	"diapause.dev/agent/lives"
	"diapause.dev/agent/restore"
	"diapause.dev/api/snapshot"
)

var _ agent.Cluster = (*Cluster)(nil)

// Choose implements agent.Cluster: see start.Starts.
func (c *Cluster) Choose(ctx context.Context, pod snapshot.PodRef, past func() (lives.Past, error),
) (restore.Choice, error) {
	return c.starts.Choose(ctx, pod, past)
}

// PodUIDs implements agent.Cluster: see objects.Objects.
func (c *Cluster) PodUIDs(ctx context.Context) (map[string]bool, error) {
	return c.objects.PodUIDs(ctx)
}

// Again implements agent.Cluster: see start.Starts.
func (c *Cluster) Again(ctx context.Context, pod snapshot.PodRef, choice restore.Choice) (restore.Choice, error) {
	return c.starts.Again(ctx, pod, choice)
}

// Restored implements agent.Cluster: see start.Starts.
func (c *Cluster) Restored(ctx context.Context, pod snapshot.PodRef, key snapshot.Key) error {
	return c.reporter.Restored(ctx, pod, key)
}

// NotRestored implements agent.Cluster: see start.Starts.
func (c *Cluster) NotRestored(ctx context.Context, pod snapshot.PodRef, key snapshot.Key, err error) {
	c.reporter.NotRestored(ctx, pod, key, err)
}

// Describe implements agent.Cluster: see request.Requests.
func (c *Cluster) Describe(ctx context.Context, pod snapshot.PodRef) (checkpoint.Description, error) {
	return c.saves.Describe(ctx, pod)
}

// DescribeWorkload implements agent.Cluster: see request.Requests.
func (c *Cluster) DescribeWorkload(ctx context.Context, pod snapshot.PodRef) (checkpoint.Description, error) {
	return c.saves.DescribeWorkload(ctx, pod)
}

// Confirmed implements agent.Cluster: see request.Requests.
func (c *Cluster) Confirmed(ctx context.Context, pod snapshot.PodRef, key snapshot.Key) error {
	return c.saves.Confirmed(ctx, pod, key)
}

// MayEnd implements agent.Cluster: see request.Requests.
func (c *Cluster) MayEnd(ctx context.Context, pod snapshot.PodRef) (wait time.Duration, saved bool) {
	return c.requests.MayEnd(ctx, pod)
}

// NotSwept implements agent.Cluster: see rollback.Watcher.
func (c *Cluster) NotSwept() string { return c.watcher.NotSwept() }

// Name implements agent.Cluster.
func (c *Cluster) Name() string { return c.saves.Name() }

// Unsaved implements agent.Cluster: see request.Requests.
func (c *Cluster) Unsaved(pod snapshot.PodRef, err error) { c.saves.Unsaved(pod, err) }

// Changed implements agent.Cluster: see request.Requests.
func (c *Cluster) Changed(r journal.Request) { c.reports.Changed(r) }

// Slept implements agent.Cluster: see slumber.Slumbers.
func (c *Cluster) Slept(pod snapshot.PodRef) {
	c.news.Slept(pod)
	c.reports.SleepChanged(pod)
}

// Woke implements agent.Cluster: see slumber.Slumbers.
func (c *Cluster) Woke(pod snapshot.PodRef, cause string, took time.Duration) {
	c.news.Woke(pod, cause, took)
	c.reports.SleepChanged(pod)
}

// WakeFailed implements agent.Cluster: see slumber.Slumbers.
func (c *Cluster) WakeFailed(pod snapshot.PodRef, err error) {
	c.news.WakeFailed(pod, err)
	c.reports.SleepChanged(pod)
}

// SleepsOn implements agent.Cluster: see slumber.Slumbers.
func (c *Cluster) SleepsOn(pod snapshot.PodRef) { c.news.SleepsOn(pod) }

// Waits implements agent.Cluster: see slumber.Slumbers.
func (c *Cluster) Waits(pod snapshot.PodRef) { c.news.Waits(pod) }

// Idle implements agent.Cluster: see sleeppolicy.Policies.
func (c *Cluster) Idle() []admission.Candidate { return c.idle.Idle() }

// PutToSleep implements agent.Cluster: see sleeppolicy.Policies.
func (c *Cluster) PutToSleep(ctx context.Context, pod snapshot.PodRef) error {
	return c.idle.PutToSleep(ctx, pod)
}

// Stores implements agent.Cluster: see objects.Objects. The agents' own store comes first.
func (c *Cluster) Stores(ctx context.Context) ([]string, error) {
	return c.objects.Stores(ctx, c.cfg.Store)
}

// Referred implements agent.Cluster: see objects.Objects.
func (c *Cluster) Referred(ctx context.Context) ([]string, error) {
	return c.objects.Referred(ctx, c.cfg.Store)
}

// Remove implements agent.Cluster: see request.Requests.
func (c *Cluster) Remove(ctx context.Context, key snapshot.Key) (known bool, err error) {
	return c.remover.Remove(ctx, key)
}
