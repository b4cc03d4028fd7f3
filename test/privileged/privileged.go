// Package privileged skips tests that need what only root may do, and so lets everybody else run the other ones.
package privileged

import (
	"os"
	"testing"
)

// Need skips a test that is not run by root, and says what it would need. Root skips nothing.
func Need(tb testing.TB, what string) {
	tb.Helper()
	if os.Geteuid() != 0 {
		tb.Skipf("only root can run this test: it needs %s", what)
	}
}
