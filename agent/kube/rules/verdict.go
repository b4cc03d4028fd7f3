package rules

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"diapause.dev/agent/kube/notice"
	podsnapshotv1 "diapause.dev/api/podsnapshot/v1"
)

// Verdict says whether a policy can be used, and returns the reason and the message for its condition Ready.
func Verdict(p *podsnapshotv1.PodSnapshotPolicy, all []podsnapshotv1.PodSnapshotPolicy,
	find Find,
) (ok bool, reason, message string) {
	if _, err := metav1.LabelSelectorAsSelector(&p.Spec.Selector); err != nil {
		return false, podsnapshotv1.ReasonInvalid, fmt.Sprintf(notice.InvalidSelector, err)
	}
	if _, err := p.Spec.Timeout(); err != nil {
		return false, podsnapshotv1.ReasonInvalid, fmt.Sprintf(notice.InvalidRetention, err)
	}
	if err := checkOnTermination(p); err != nil {
		return false, podsnapshotv1.ReasonInvalid, err.Error()
	}
	if err := checkOnSandboxLoss(p); err != nil {
		return false, podsnapshotv1.ReasonInvalid, err.Error()
	}
	if err := checkOnNetAdmin(p); err != nil {
		return false, podsnapshotv1.ReasonInvalid, err.Error()
	}
	if err := podsnapshotv1.CheckOnRestoreFailure(p.Annotations); err != nil {
		return false, podsnapshotv1.ReasonInvalid, err.Error()
	}
	config, found := find(p.Spec.StorageConfigName)
	if !found {
		return false, podsnapshotv1.ReasonStorageConfigNotFound,
			fmt.Sprintf(notice.NoStorageConfig, p.Spec.StorageConfigName)
	}
	if _, err := Location(config); err != nil {
		return false, podsnapshotv1.ReasonStorageConfigNotReady, err.Error()
	}
	if c := meta.FindStatusCondition(config.Status.Conditions, podsnapshotv1.ConditionReady); c != nil &&
		c.Status == metav1.ConditionFalse {
		return false, podsnapshotv1.ReasonStorageConfigNotReady,
			fmt.Sprintf(notice.StorageConfigNotReady, config.Name, c.Message)
	}
	message = notice.PolicyUsable
	if others := Overlapping(p, all); len(others) > 0 {
		message += fmt.Sprintf(notice.AlsoSelected, Names(others))
	}
	return true, podsnapshotv1.ReasonValid, message
}
