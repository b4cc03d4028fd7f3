package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of the types of this package.
var GroupVersion = schema.GroupVersion{Group: "diapause.dev", Version: "v1alpha1"}

// AddToScheme adds the types of this package to a scheme. It always returns nil; scheme builders expect the result.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &SleepPolicy{}, &SleepPolicyList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
