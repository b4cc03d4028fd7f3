package fast_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"diapause.dev/runsc/fast"
)

// TestUpstreamHasChanged: a file that we touch is not replaced without a word if gVisor has changed it, removed it, or
// added one of that name.
func TestUpstreamHasChanged(t *testing.T) {
	source := filepath.Join(t.TempDir(), "source")
	if err := os.CopyFS(source, os.DirFS(output(t, "", "list", "-m", "-f", "{{.Dir}}", "gvisor.dev/gvisor"))); err != nil {
		t.Fatal(err)
	}
	for _, v := range []struct {
		name, file string
		change     func(path string) error
		patches    []string
	}{
		{"an edited file", "pkg/sentry/pgalloc/save_restore.go", appendComment, []string{"0003", "0008", "0010"}},
		{"a replaced file", "pkg/state/encode_unsafe.go", appendComment, []string{"0006"}},
		{"a removed file", "pkg/state/addr_set.go", appendComment, []string{"0006"}},
		{"a file that is gone", "pkg/state/state.go", os.Remove, []string{"0006", "0007"}},
		{"a file of that name", "pkg/sentry/pgalloc/promise.go", appendComment, []string{"0009"}},
	} {
		t.Run(v.name, func(t *testing.T) {
			path := filepath.Join(source, v.file)
			before, err := os.ReadFile(path)
			if err := v.change(path); err != nil {
				t.Fatal(err)
			}
			defer restore(t, path, before, err == nil)
			got := fast.Tree(source, filepath.Join(t.TempDir(), "gvisor"))
			if got == nil || !strings.Contains(got.Error(), "gVisor's "+v.file+" is not the one") {
				t.Fatalf("got %v, want an error that names %s", got, v.file)
			}
			for _, p := range v.patches {
				if !strings.Contains(got.Error(), "patches/"+p+"-") {
					t.Errorf("%q does not name patch %s", got, p)
				}
			}
			if n := strings.Count(got.Error(), ".patch"); n != len(v.patches) {
				t.Errorf("%q names %d patches, want %d", got, n, len(v.patches))
			}
		})
	}
	if err := fast.Tree(source, filepath.Join(t.TempDir(), "gvisor")); err != nil {
		t.Errorf("gVisor as it is: %v", err)
	}
}

// appendComment changes a file, which may have to be made.
func appendComment(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString("// A change of gVisor's.\n")
	return err
}

// restore undoes a change of a file, which may not have been there.
func restore(t *testing.T, path string, data []byte, existed bool) {
	t.Helper()
	err := os.RemoveAll(path)
	if existed {
		err = os.WriteFile(path, data, 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}
