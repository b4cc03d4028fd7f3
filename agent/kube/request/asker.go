package request

import (
	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"

	"diapause.dev/agent/journal"
	"diapause.dev/agent/kube/names"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// uuids is the name space of UUIDs that name the ledger's files. In earlier versions they also named snapshots.
var uuids = uuid.MustParse("6c1f3a5e-0a52-4d0e-9c41-1f6a2f0d7b18")

// asker identifies a request for one snapshot. Retries of the request have the same asker.
type asker struct {
	namespace string
	tag       names.Tag
	old       string // the snapshot's name if an earlier version began it
}

func newAsker(namespace, id string) asker {
	return asker{namespace, names.TagOf(id), uuid.NewSHA1(uuids, []byte(id)).String()}
}

func triggerAsker(t *podsnapshotv1.PodSnapshotManualTrigger) asker {
	return newAsker(t.Namespace, string(t.UID))
}

// annotationAsker returns the asker for a pod's annotation with a certain value.
func annotationAsker(namespace string, pod types.UID, id string) asker {
	return newAsker(namespace, string(pod)+"/"+id)
}

// mark is what the name of a snapshot says about its asker.
type mark struct {
	namespace string
	tag       names.Tag
	name      string // empty: the tag identifies the asker
}

func markOf(k snapshot.Key) mark {
	if _, tag, ok := names.Parse(k.Name); ok {
		return mark{k.Namespace, tag, ""}
	}
	return mark{k.Namespace, 0, k.Name}
}

// marks returns the marks that the name of the asker's snapshot may have.
func (a asker) marks() [2]mark {
	return [...]mark{{a.namespace, a.tag, ""}, {a.namespace, 0, a.old}}
}

// about returns the key for events that concern only the asker, which may have no snapshot yet.
func (a asker) about() snapshot.Key { return snapshot.Key{Namespace: a.namespace, Name: a.old} }

// made reports whether a snapshot is the one that this asker asked for.
func (a asker) made(k snapshot.Key) bool {
	m := markOf(k)
	return m == a.marks()[0] || m == a.marks()[1]
}

// name gives a job's snapshot its name, once it is the job's turn, and records in the ledger what the snapshot
// is for. A snapshot that got a name before a crash keeps it.
func (rs *Requests) name(j *job) (string, error) {
	k := rs.keyOf(j.asker)
	if k.Name == "" {
		k = snapshot.Key{Namespace: j.asker.namespace, Name: rs.Names.Name(j.asker.tag)}
	}
	if err := rs.ledger.put(entry{Key: k, Pod: j.pod, Plan: j.plan, Trigger: j.requester.trigger}); err != nil {
		return "", err
	}
	rs.jobs.named(j, k)
	return k.Name, nil
}

// over reports whether a pod is free for the next checkpoint although the asker of this one may not be answered yet:
// its snapshot is spooled, or it has failed, in this agent or in an earlier one.
func (rs *Requests) over(a asker) bool {
	if _, working := rs.jobs.of(a); working {
		return rs.jobs.done(a)
	}
	k := rs.keyOf(a)
	if k.Name == "" {
		return false
	}
	if q, known := rs.reported.get(k); known {
		return spooled(q) || q.Stage == journal.StageFailed
	}
	e, _ := rs.ledger.get(k)
	return e.Published != ""
}

// keyOf returns the key of the snapshot that was begun for an asker. It is zero if this node knows of none.
func (rs *Requests) keyOf(a asker) snapshot.Key {
	if j, ok := rs.jobs.of(a); ok && j.key.Name != "" {
		return j.key
	}
	for _, m := range a.marks() {
		if k, ok := rs.reported.find(m); ok {
			return k
		}
		if k, ok := rs.ledger.find(m); ok {
			return k
		}
	}
	return snapshot.Key{}
}
