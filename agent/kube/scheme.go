package kube

import (
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
	sleepv1alpha1 "diapause.dev/api/sleeppolicy/v1alpha1"
)

// scheme contains the types that an agent works with.
var scheme = newScheme()

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(coordinationv1.AddToScheme(s))
	utilruntime.Must(podsnapshotv1.AddToScheme(s))
	utilruntime.Must(sleepv1alpha1.AddToScheme(s))
	return s
}

// mapper maps these types to their resources, so that the API server need not be asked.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{
		corev1.SchemeGroupVersion, coordinationv1.SchemeGroupVersion,
		podsnapshotv1.GroupVersion, sleepv1alpha1.GroupVersion,
	})
	m.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	m.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	m.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), meta.RESTScopeNamespace)
	m.Add(podsnapshotv1.GroupVersion.WithKind("PodSnapshot"), meta.RESTScopeNamespace)
	m.Add(podsnapshotv1.GroupVersion.WithKind("PodSnapshotManualTrigger"), meta.RESTScopeNamespace)
	m.AddSpecific(podsnapshotv1.GroupVersion.WithKind("PodSnapshotPolicy"),
		podsnapshotv1.GroupVersion.WithResource("podsnapshotpolicies"),
		podsnapshotv1.GroupVersion.WithResource("podsnapshotpolicy"), meta.RESTScopeNamespace)
	m.Add(podsnapshotv1.GroupVersion.WithKind("PodSnapshotStorageConfig"), meta.RESTScopeRoot)
	m.AddSpecific(sleepv1alpha1.GroupVersion.WithKind("SleepPolicy"),
		sleepv1alpha1.GroupVersion.WithResource("sleeppolicies"),
		sleepv1alpha1.GroupVersion.WithResource("sleeppolicy"), meta.RESTScopeNamespace)
	return m
}
