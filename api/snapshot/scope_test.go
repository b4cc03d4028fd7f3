package snapshot

import (
	"encoding/json"
	"testing"
)

// TestScope: a manifest without a scope is of a whole pod.
func TestScope(t *testing.T) {
	for text, want := range map[string]Scope{`{}`: WholePod, `{"scope":"rootfs-only"}`: RootfsOnly} {
		var m Meta
		if err := json.Unmarshal([]byte(text), &m); err != nil || m.Scope != want || m.Scope.Validate() != nil {
			t.Errorf("%s is %s, %v", text, m.Scope, err)
		}
	}
	if WholePod.String() != "whole-pod" || RootfsOnly.String() != "rootfs-only" || Scope("half").Validate() == nil {
		t.Error("scopes are not what they are called")
	}
}
