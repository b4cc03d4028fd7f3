package record

import (
	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/types"

	"diapause.dev/agent/kube/names"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	"diapause.dev/api/snapshot"
)

// uuids is the name space of UUIDs that name the ledger's files. In earlier versions they also named snapshots.
var uuids = uuid.MustParse("6c1f3a5e-0a52-4d0e-9c41-1f6a2f0d7b18")

// Asker identifies a request for one snapshot. Retries of the request have the same asker.
type Asker struct {
	namespace string
	tag       names.Tag
	old       string // the snapshot's name if an earlier version began it
}

// NewAsker returns the asker of the request with this id, which is unique in its namespace.
func NewAsker(namespace, id string) Asker {
	return Asker{namespace, names.TagOf(id), uuid.NewSHA1(uuids, []byte(id)).String()}
}

// TriggerAsker returns the asker for a trigger.
func TriggerAsker(t *podsnapshotv1.PodSnapshotManualTrigger) Asker {
	return NewAsker(t.Namespace, string(t.UID))
}

// AnnotationAsker returns the asker for a pod's annotation with a certain value.
func AnnotationAsker(namespace string, pod types.UID, id string) Asker {
	return NewAsker(namespace, string(pod)+"/"+id)
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
func (a Asker) marks() [2]mark {
	return [...]mark{{a.namespace, a.tag, ""}, {a.namespace, 0, a.old}}
}

// Namespace returns the namespace of the object that asks.
func (a Asker) Namespace() string { return a.namespace }

// About returns the key for events that concern only the asker, which may have no snapshot yet.
func (a Asker) About() snapshot.Key { return snapshot.Key{Namespace: a.namespace, Name: a.old} }

// Made reports whether a snapshot is the one that this asker asked for.
func (a Asker) Made(k snapshot.Key) bool {
	m := markOf(k)
	return m == a.marks()[0] || m == a.marks()[1]
}
