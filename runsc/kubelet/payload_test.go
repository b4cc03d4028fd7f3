package kubelet

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const stamp = "..2026_11_27_07_25_44.3932503335"

// TestHostilePayload: nothing is taken for a directory of the kubelet's but what a kubelet can have made.
func TestHostilePayload(t *testing.T) {
	if p, err := ParsePayload("config/" + stamp); err != nil || p.String() != "config/"+stamp {
		t.Errorf("%v, %v", p, err)
	}
	for _, name := range []string{
		"", "config", "config/", "config/..", "config/..data", stamp, "config/" + stamp + "/x", "../" + stamp,
		"a/b/" + stamp, "Config/" + stamp, "config/..2026_11_27_07_25_44.", "config/" + stamp + strings.Repeat("1", 20),
		"config/x" + stamp, "config/" + stamp + "\n",
	} {
		if p, err := ParsePayload(name); err == nil {
			t.Errorf("%q is %+v", name, p)
		}
	}
}

func TestInPayload(t *testing.T) {
	for path, want := range map[string]string{
		stamp:                     stamp + " .",
		stamp + "/run.sh":         stamp + " run.sh",
		stamp + "/certs/ca.crt":   stamp + " certs/ca.crt",
		"..data":                  "",
		"run.sh":                  "",
		".":                       "",
		"":                        "",
		"below/" + stamp + "/x":   "",
		stamp + "x/run.sh":        "",
		"..2026_11_27/run.sh":     "",
		"/" + stamp + "/run.sh":   "",
		"../" + stamp + "/run.sh": "",
	} {
		dir, rest, ok := InPayload(path)
		if got := strings.TrimSpace(dir + " " + rest); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v; want %q", path, got, ok, want)
		}
	}
}

func TestWritten(t *testing.T) {
	const pod = "5e6d1ab0-0000-4000-8000-000000000001"
	of := Root + "/pods/" + pod + "/volumes/"
	for path, want := range map[string]string{
		of + "kubernetes.io~configmap/config":                       "config",
		of + "kubernetes.io~secret/s":                               "s",
		of + "kubernetes.io~projected/token/":                       "token",
		of + "kubernetes.io~downward-api/d":                         "d",
		of + "kubernetes.io~empty-dir/e":                            "",
		of + "kubernetes.io~csi/claim":                              "",
		of + "kubernetes.io~configmap/config/run.sh":                "",
		"/other" + of + "kubernetes.io~configmap/c":                 "",
		Root + "/pods/other/volumes/kubernetes.io~configmap/config": "",
	} {
		if got, ok := Written(pod, path); got != want && ok || ok != (want != "") {
			t.Errorf("%s: %q, %v", path, got, ok)
		}
	}
}

// TestWrittenDir: a new pod's volume is found by its name. The API server makes up the name of the token's volume anew
// for each pod.
func TestWrittenDir(t *testing.T) {
	root := t.TempDir()
	of := func(pod, dir string) string { return filepath.Join(root, "pods", pod, "volumes", dir) }
	for _, dir := range []string{
		of("one", "kubernetes.io~configmap/config"), of("one", projected+"/kube-api-access-new"),
		of("two", projected+"/kube-api-access-a"), of("two", projected+"/kube-api-access-b"),
	} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ pod, name, want string }{
		{"one", "config", of("one", "kubernetes.io~configmap/config")},
		{"one", "kube-api-access-old", of("one", projected+"/kube-api-access-new")},
		{"two", "kube-api-access-b", of("two", projected+"/kube-api-access-b")},
		{"two", "kube-api-access-old", ""},
		{"one", "gone", ""},
		{"one", "..", ""},
		{"..", "config", ""},
	} {
		if got, err := writtenDir(root, c.pod, c.name); got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("volume %s of pod %s: %q, %v; want %q", c.name, c.pod, got, err, c.want)
		}
	}
}
