package panics

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestHostilePanics: an error says what Go's runtime has written since, in bounds and quoted, and nothing else.
func TestHostilePanics(t *testing.T) {
	failed := errors.New("it failed")
	for _, test := range []struct{ name, before, since, want string }{
		{"nothing", "", "", "it failed"},
		{"an earlier one", "panic: long ago\n", "", "it failed"},
		{
			"a panic", "fatal error: long ago\n", "note\npanic: a hole\n\ngoroutine 1",
			`the sandbox died of "panic: a hole" (see `,
		},
		{"the runtime's own", "", "fatal error: concurrent map writes\n", `"fatal error: concurrent map writes"`},
		{"a signal", "", "SIGABRT: abort\nPC=0x1", `"SIGABRT: abort"`},
		{"no reason", "", "my panic: none\n", "it failed"},
		{"control characters", "", "panic: \x1b[2J\xff\n", `"panic: \x1b[2J\xff"`},
		{"too far", "", strings.Repeat("x\n", maxRead) + "panic: unseen\n", "it failed"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "gvisor_panic.log")
			if err := os.WriteFile(path, []byte(test.before), 0o600); err != nil {
				t.Fatal(err)
			}
			p := From(map[string]string{"io.kubernetes.cri.sandbox-log-directory": dir})
			if err := os.WriteFile(path, []byte(test.before+test.since), 0o600); err != nil {
				t.Fatal(err)
			}
			err := p.Explain(failed)
			if !errors.Is(err, failed) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
			if test.want == failed.Error() && err.Error() != test.want {
				t.Errorf("%v, want nothing more than %s", err, test.want)
			}
		})
	}
	long := From(map[string]string{"io.kubernetes.cri.sandbox-log-directory": t.TempDir()})
	if err := os.WriteFile(long.path, []byte("panic: "+strings.Repeat("x", maxRead)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := long.Explain(failed); len(err.Error()) > 2*maxQuote {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
	if err := From(nil).Explain(failed); !errors.Is(err, failed) {
		t.Errorf("without a log directory: %v", err)
	}
}
