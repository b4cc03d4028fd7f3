package integration

import "testing"

// TestCross saves under each build and restores under each, and saves what was restored for the other build. Nothing of
// the guest may be lost on the way, and the origin goes on.
func TestCross(t *testing.T) {
	for _, from := range []string{stock, fast} {
		origin := newSandbox(t, from, "origin")
		origin.start(t)
		image := origin.save(t, "none")
		for _, to := range []string{stock, fast} {
			t.Run(from+" to "+to, func(t *testing.T) {
				first := newSandbox(t, to, "first")
				first.restore(t, image, "--background")
				again := first.save(t, "none")
				first.check(t)
				second := newSandbox(t, other(to), "second")
				second.restore(t, again)
				second.check(t)
			})
		}
		origin.check(t)
	}
}

// TestCrossCompressed has the kernel's state and the pages in one compressed stream.
func TestCrossCompressed(t *testing.T) {
	for _, from := range []string{stock, fast} {
		t.Run(from+" to "+other(from), func(t *testing.T) {
			origin := newSandbox(t, from, "origin")
			origin.start(t)
			origin.check(t)
			restored := newSandbox(t, other(from), "restored")
			restored.restore(t, origin.save(t, "flate-best-speed"))
			restored.check(t)
		})
	}
}

// other returns the other build.
func other(build string) string {
	if build == stock {
		return fast
	}
	return stock
}
