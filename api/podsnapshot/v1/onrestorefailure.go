package v1

import "fmt"

// CheckVolumeCheck returns an error if annotations have an unknown value of AnnotationVolumeCheck.
func CheckVolumeCheck(annotations map[string]string) error {
	v, ok := annotations[AnnotationVolumeCheck]
	if !ok || v == VolumeCheckIgnore {
		return nil
	}
	return fmt.Errorf("annotation %s is %.80q, which has no effect: its only value is %s", AnnotationVolumeCheck, v,
		VolumeCheckIgnore)
}

// MustRestore reports whether the annotations of a pod or of a policy forbid that a pod which cannot be restored starts
// cold. An unknown value forbids it, too.
func MustRestore(annotations map[string]string) bool {
	v, ok := annotations[AnnotationOnRestoreFailure]
	return ok && v != OnRestoreFailureColdStart
}

// CheckOnRestoreFailure returns an error if annotations have an unknown value of AnnotationOnRestoreFailure. The error
// says what it counts as, and which values there are.
func CheckOnRestoreFailure(annotations map[string]string) error {
	v := annotations[AnnotationOnRestoreFailure]
	if !MustRestore(annotations) || v == OnRestoreFailureFail {
		return nil
	}
	return fmt.Errorf("annotation %s is %.80q, which counts as %s: its values are %s and %s",
		AnnotationOnRestoreFailure, v, OnRestoreFailureFail, OnRestoreFailureFail, OnRestoreFailureColdStart)
}
