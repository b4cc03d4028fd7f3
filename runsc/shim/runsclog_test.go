package shim

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhyRunsc(t *testing.T) {
	failed := errors.New("failed")
	long := strings.Repeat("x", maxRunscLog)
	for name, test := range map[string]struct{ log, want string }{
		"nothing":  {"", "failed"},
		"one":      {`{"msg":"no image","level":"error","time":"t"}`, "failed: no image"},
		"two":      {`{"msg":"old","level":"error"}{"msg":"new","level":"error"}`, "failed: new"},
		"lines":    {"{\"msg\":\"old\",\"level\":\"error\"}\n{\"msg\":\"new\",\"level\":\"error\"}\n", "failed: new"},
		"warning":  {`{"msg":"bad","level":"error"}{"msg":"odd","level":"warning"}`, "failed: bad"},
		"quoted":   {`{"msg":"got {\"msg\":\"x\"}","level":"error"}`, `failed: got {"msg":"x"}`},
		"cut off":  {`{"msg":"bad","level":"error"}{"msg":"ne`, "failed: bad"},
		"too long": {`{"msg":"` + long + `","level":"error"}`, "failed"},
		"tail":     {long + `{"msg":"bad","level":"error"}`, "failed: bad"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "log.json")
			if err := os.WriteFile(path, []byte(test.log), 0o600); err != nil {
				t.Fatal(err)
			}
			got := whyRunsc(failed, path)
			if !errors.Is(got, failed) || got.Error() != test.want {
				t.Errorf("error %q, want %q", got, test.want)
			}
		})
	}
}
