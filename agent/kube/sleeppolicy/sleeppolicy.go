// Package sleeppolicy serves SleepPolicies on a node: it has the pods of the node that exactly one of them selects
// watched, and puts those to sleep that nobody uses.
package sleeppolicy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"diapause.dev/agent/checkpoint"
	"diapause.dev/agent/idle"
	"diapause.dev/agent/kube/control"
	"diapause.dev/agent/kube/notice"
	"diapause.dev/agent/kube/objects"
	"diapause.dev/agent/kube/rules"
	"diapause.dev/agent/ready"
	"diapause.dev/agent/snapshots"
	sleepv1alpha1 "diapause.dev/api/sleeppolicy/v1alpha1"
	"diapause.dev/api/snapshot"
	"diapause.dev/runsc/sleep"
	"diapause.dev/runsc/traffic"
)

// Config is what Policies work with.
type Config struct {
	Objects *objects.Objects
	Sleeps  Sleeps
	// Asleep returns the mark of the pod with that UID. Ok is false if it does not sleep.
	Asleep func(podUID string) (m sleep.Mark, ok bool)
	Ready  Ready
	Meter  idle.Meter
	Logger *slog.Logger
}

// Sleeps put pods to sleep. *sleep.Sleeps implements it.
type Sleeps interface {
	// Sleep saves a pod and ends its sandbox. The pod stays.
	Sleep(ctx, life context.Context, o checkpoint.Options) (*snapshots.Found, error)
}

// Ready hears which pods are to be ready when they sleep. *ready.Demand implements it.
type Ready interface {
	// Wish notes whether the pod with that UID is to be ready when it sleeps.
	Wish(uid string, w ready.Wish)
	// WishesKnown says that Wish was called for all pods for which it has to be. Until then no pod is made ready.
	WishesKnown()
}

// Policies are the SleepPolicies as they concern this node.
type Policies struct {
	Config
	pods    control.Queue
	watcher *idle.Watcher

	mu     sync.Mutex
	all    map[string]*known               // pods that a policy selects, by UID
	uid    map[types.NamespacedName]string // of these pods
	wished map[types.NamespacedName]string // UIDs of the pods that are always or never to be ready when they sleep
}

// known is a pod that a policy selects.
type known struct {
	policy  string // names of the policies
	version string // of their specs
	dryRun  bool
	toEnd   bool // it is woken to be ended
	ignored []traffic.Ignored
	answer  time.Duration // for how long a request that is not answered counts as use
	after   time.Duration
	rest    rest
	stays   string        // why it is never tried, as an event has said
	failed  bool          // an event has said why it stays awake
	backoff time.Duration // until the next attempt
}

// New returns the policies of a node.
func New(c Config) *Policies {
	p := &Policies{
		Config: c, all: make(map[string]*known), uid: make(map[types.NamespacedName]string),
		wished: make(map[types.NamespacedName]string),
	}
	p.watcher = idle.NewWatcher(idle.Config{Meter: c.Meter, Idle: p.idle, LongAwake: p.longAwake, Logger: c.Logger})
	return p
}

// Run puts idle pods to sleep until ctx is done, and returns when no attempt is under way.
func (p *Policies) Run(ctx context.Context) { p.watcher.Run(ctx) }

// Control adds the controller.
func (p *Policies) Control(mgr manager.Manager) error {
	if err := mgr.Add(p); err != nil {
		return fmt.Errorf("add the wishes of policies: %w", err)
	}
	b := control.Controller(mgr, &p.pods).Watches(&corev1.Pod{}, &handler.EnqueueRequestForObject{}).
		Watches(&sleepv1alpha1.SleepPolicy{}, handler.EnqueueRequestsFromMapFunc(p.podsBeside))
	return control.Complete(b, "idle-pod", p.serve)
}

// podsBeside returns the pods of this node in a policy's namespace.
func (p *Policies) podsBeside(ctx context.Context, policy client.Object) (out []reconcile.Request) {
	var pods corev1.PodList
	if err := p.Objects.List(ctx, &pods, client.InNamespace(policy.GetNamespace())); err != nil {
		p.Logger.Warn("pods not read", "error", err)
		return nil
	}
	for i := range pods.Items {
		out = append(out, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pods.Items[i])})
	}
	return out
}

// serve has a pod of this node watched if exactly one policy selects it.
func (p *Policies) serve(ctx context.Context, r reconcile.Request) (reconcile.Result, error) {
	pod, err := p.Objects.PodHere(ctx, r.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	var all sleepv1alpha1.SleepPolicyList
	if err := p.Objects.List(ctx, &all, client.InNamespace(r.Namespace)); err != nil {
		return reconcile.Result{}, fmt.Errorf("read SleepPolicies of namespace %s: %w", r.Namespace, err)
	}
	if pod == nil || pod.DeletionTimestamp != nil {
		p.wish(r.NamespacedName, "", nil)
		p.forget(r.NamespacedName)
		return reconcile.Result{}, nil
	}
	policies, names := selecting(pod, all.Items)
	p.wish(r.NamespacedName, string(pod.UID), policies)
	if len(policies) == 0 || !containersReady(pod) {
		p.forget(r.NamespacedName)
		return reconcile.Result{}, nil
	}
	return reconcile.Result{}, p.adopt(pod, policies, names)
}

// containersReady reports whether a pod's containers run and are ready.
func containersReady(pod *corev1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.ContainersReady {
			return c.Status == corev1.ConditionTrue && pod.Status.Phase == corev1.PodRunning
		}
	}
	return false
}

// adopt has a pod watched, unless several policies select it or it may never sleep.
func (p *Policies) adopt(pod *corev1.Pod, policies []*sleepv1alpha1.SleepPolicy, names string) error {
	ref, key := objects.RefOf(pod), client.ObjectKeyFromObject(pod)
	rule, err := ruleOf(policies[0], probed(pod))
	if err != nil { // the policy's status says so
		p.forget(key)
		return nil
	}
	mark, asleep := p.Asleep(ref.UID)
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.uid[key]; old != ref.UID {
		delete(p.all, old)
		p.watcher.Forget(old)
	}
	k := p.all[ref.UID]
	if k == nil {
		k = new(known)
		p.all[ref.UID], p.uid[key] = k, ref.UID
	}
	if is := fmt.Sprint(names, policies[0].UID, policies[0].Generation); k.version != is { // its time begins anew
		k.version, k.failed, k.backoff = is, false, 0
		p.watcher.Forget(ref.UID)
	}
	k.rest.note(mark.Since, asleep, time.Now(), rule.After)
	rule.After = k.rest.longer(rule.After)
	k.policy, k.dryRun, k.after, k.toEnd = names, policies[0].Spec.DryRun, rule.After, wakesToEnd(policies[0])
	k.ignored, k.answer = rule.Ignored, rule.AnswerWithin
	if asleep {
		k.failed, k.backoff = false, 0
	}
	why := obstacle(pod, policies, names)
	if why == "" {
		k.stays = ""
		p.watcher.Watch(ref, rule, asleep)
		return nil
	}
	p.watcher.Forget(ref.UID)
	if k.stays != why && !asleep {
		k.stays = why
		p.Objects.Events.Pod(ref, snapshot.Key{}, notice.StaysAwake, why)
	}
	return nil
}

// obstacle returns why a pod is not put to sleep, however idle it is, or nothing.
func obstacle(pod *corev1.Pod, policies []*sleepv1alpha1.SleepPolicy, names string) string {
	if len(policies) > 1 {
		return "several SleepPolicies select it: " + names + "; change their selectors so that one does"
	}
	if err := rules.NetAdmin(pod, nil).Sleep(rules.PodKey(pod)); err != nil {
		return err.Error()
	}
	return ""
}

// forget ends the watch of a pod.
func (p *Policies) forget(key types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	uid := p.uid[key]
	delete(p.uid, key)
	delete(p.all, uid)
	p.watcher.Forget(uid)
}

// inUsePause is the pause before a pod is tried again in which a process was running that exec has started.
const inUsePause = 5 * time.Second

// A pod that could not be put to sleep is tried again after backoffFirst. The pause then doubles, up to backoffMost.
const (
	backoffFirst = time.Minute
	backoffMost  = time.Hour
)

// idle puts a pod to sleep that was found idle, unless the policy only says so.
func (p *Policies) idle(ctx context.Context, ref snapshot.PodRef) idle.Verdict {
	p.mu.Lock()
	k := p.all[ref.UID]
	if k == nil {
		p.mu.Unlock()
		return idle.Verdict{}
	}
	policy, dryRun, after := k.policy, k.dryRun, k.after
	o := checkpoint.Options{Target: ref.UID, WakeToEnd: k.toEnd, Ignored: k.ignored, AnswerWithin: k.answer}
	p.mu.Unlock()
	if dryRun {
		p.Objects.Events.Pod(ref, snapshot.Key{}, notice.WouldSleep, after, policy)
		return idle.Verdict{}
	}
	_, err := p.Sleeps.Sleep(ctx, ctx, o)
	switch {
	case err == nil:
		return idle.Verdict{Asleep: true, Pause: after}
	case ctx.Err() != nil || errors.Is(err, sleep.ErrTraffic):
		return idle.Verdict{Used: true}
	case errors.Is(err, sleep.ErrInUse): // a session has just begun, which the watcher will see, or a probe runs
		return idle.Verdict{InUse: true, Pause: inUsePause}
	}
	return idle.Verdict{Pause: p.stayed(ref, k, err)}
}

// longAwake says why a pod that a policy selects has not been put to sleep for long.
func (p *Policies) longAwake(ref snapshot.PodRef, u idle.Use) {
	p.mu.Lock()
	k := p.all[ref.UID]
	p.mu.Unlock()
	switch {
	case k == nil: // no policy selects it now
	case u.Err != nil:
		p.Objects.Events.Pod(ref, snapshot.Key{}, notice.StaysAwake, u.String())
	default:
		p.Objects.Events.Pod(ref, snapshot.Key{}, notice.InUse, u.String())
	}
}

// stayed says once why a pod stays awake, and returns when to try again.
func (p *Policies) stayed(ref snapshot.PodRef, k *known, err error) time.Duration {
	p.mu.Lock()
	said := k.failed
	k.failed, k.backoff = true, min(max(2*k.backoff, backoffFirst), backoffMost)
	pause := k.backoff
	p.mu.Unlock()
	if !said {
		p.Objects.Events.Pod(ref, snapshot.Key{}, notice.IdleStaysAwake, err)
	}
	return pause
}
