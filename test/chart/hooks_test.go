package chart

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// hook returns the events at which Helm makes an object, which is no part of the installation; empty: it is one.
func hook(object vals) string {
	metadata, _ := object["metadata"].(vals)
	annotations, _ := metadata["annotations"].(vals)
	events, _ := annotations["helm.sh/hook"].(string)
	return events
}

// installed returns the objects that are there all the time.
func (o objects) installed() objects {
	all := maps.Clone(o)
	maps.DeleteFunc(all, func(_ string, object vals) bool { return hook(object) != "" })
	return all
}

// TestHooks: what a hook needs, its rights above all, is there only for the hook. The agents may be taken from the
// nodes, and the release be removed, only after the check that no pod sleeps.
func TestHooks(t *testing.T) {
	for _, uninstall := range []bool{false, true} {
		all, _ := release{}.render(t, set("uninstall", uninstall))
		check := map[bool]string{false: "pre-delete", true: "pre-upgrade,pre-delete"}[uninstall]
		of := map[string]string{"diapause-can-uninstall": check, "diapause-test": "test"}
		found := map[string]int{}
		for id, object := range all {
			name := object["metadata"].(vals)["name"].(string)
			if got, want := hook(object), of[name]; got != want {
				t.Errorf("%s is a hook for %q, want %q", id, got, want)
			}
			if of[name] == "" {
				continue
			}
			found[name]++
			policy := object["metadata"].(vals)["annotations"].(vals)["helm.sh/hook-delete-policy"].(string)
			if got := strings.Split(policy, ","); len(got) != 3 || !slices.Contains(got, "hook-failed") {
				t.Errorf("%s stays after %q", id, policy)
			}
		}
		if found["diapause-can-uninstall"] != 4 || found["diapause-test"] != 5 {
			t.Errorf("the hooks have %v objects, want 4 and 5", found)
		}
	}
}

// TestHookRights: no hook may write anything but the objects of its trial.
func TestHookRights(t *testing.T) {
	all, _ := release{}.render(t, nil)
	for _, id := range []string{
		"rbac.authorization.k8s.io/v1 ClusterRole  diapause-can-uninstall",
		"rbac.authorization.k8s.io/v1 Role diapause-system diapause-test",
	} {
		for _, rule := range all[id]["rules"].([]any) {
			verbs := rule.(vals)["verbs"].([]any)
			named := rule.(vals)["resourceNames"] != nil
			for _, verb := range verbs {
				free := slices.Contains([]any{"get", "list", "create"}, verb)
				snapshots := slices.Contains(rule.(vals)["resources"].([]any), "podsnapshots") // their names are random
				if strings.Contains(id, "can-uninstall") && verb != "list" || !free && !named && !snapshots {
					t.Errorf("%s: %v", id, rule)
				}
			}
		}
	}
}
