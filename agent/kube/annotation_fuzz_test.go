package kube_test

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"diapause.dev/agent/kube/request"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// FuzzParseStatus: any annotation of a pod parses either as an answer that can be written again, or as none.
func FuzzParseStatus(f *testing.F) {
	for _, s := range []string{"", "{", `{"id":"x","state":"Complete","snapshot":"s"}`, `{"id":1}`, "[]", "null"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		read := func(v string) request.Status {
			annotations := map[string]string{podsnapshotv1.AnnotationCheckpointStatus: v}
			return request.ParseStatus(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: annotations}})
		}
		s := read(value)
		b, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if again := read(string(b)); again != s {
			t.Errorf("%q is read as %+v, and that as %+v", value, s, again)
		}
	})
}
