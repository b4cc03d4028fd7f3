package local

import (
	"compress/gzip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/cgroups/v3"
)

// TestDescribeKernel: doctor names the kernel and the version of cgroups, and what an older kernel cannot do.
func TestDescribeKernel(t *testing.T) {
	if got := describeKernel("6.12.1", cgroups.Unified, true); got != "Linux 6.12.1, cgroup v2" {
		t.Error(got)
	}
	old := describeKernel("6.1.0-13", cgroups.Legacy, false)
	if !strings.HasPrefix(old, "Linux 6.1.0-13, cgroup v1; attention: ") {
		t.Error(old)
	}
	got, err := kernelFacts()
	if err != nil || !strings.HasPrefix(got, "Linux ") || !strings.Contains(got, ", cgroup v") {
		t.Errorf("%q, %v", got, err)
	}
}

// whole is the part that counts of a kernel's configuration: 6.18's, as it shows it.
const whole = "#\n# Networking options\n#\nCONFIG_NET=y\nCONFIG_PACKET=y\n# CONFIG_PACKET_DIAG is not set\n" +
	"CONFIG_INET_DIAG=m\nCONFIG_INET_TCP_DIAG=m\nCONFIG_NF_TABLES=m\nCONFIG_NF_TABLES_IPV4=y\n" +
	"CONFIG_NF_TABLES_IPV6=y\nCONFIG_NFT_TPROXY=m\nCONFIG_DEFAULT_HOSTNAME=\"(none)\"\n"

// TestDescribeKernelConfig: what a kernel lacks is said once, with what fails, wherever its configuration is. If that
// is not to be had, nothing is said to be missing.
func TestDescribeKernelConfig(t *testing.T) {
	without := func(options ...string) string {
		text := whole
		for _, o := range options {
			for _, value := range []string{"=y\n", "=m\n"} {
				text = strings.Replace(text, "\n"+o+value, "\n# "+o+" is not set\n", 1)
			}
		}
		return text
	}
	const advice = ": use a kernel that has it"
	for name, c := range map[string]struct{ config, want string }{
		"all": {whole, ""},
		"no nftables": {
			without("CONFIG_NF_TABLES", "CONFIG_NF_TABLES_IPV4", "CONFIG_NF_TABLES_IPV6", "CONFIG_NFT_TPROXY"),
			"; attention: without CONFIG_NF_TABLES pods cannot sleep, and kubectl port-forward to pods fails" + advice,
		},
		"no IPv6, no probes": {
			without("CONFIG_NF_TABLES_IPV6", "CONFIG_INET_TCP_DIAG"),
			"; attention: without CONFIG_NF_TABLES_IPV6 pods cannot sleep" + advice +
				"; attention: without CONFIG_INET_TCP_DIAG probes of the kubelet wake pods that sleep" + advice,
		},
		"nothing that counts": {"CONFIG_X86=y\n", "; unknown whether it has nftables"},
		"a long line":         {whole + strings.Repeat("x", 1<<17), "; unknown whether it has nftables"},
		"none":                {"", "; unknown whether it has nftables"},
	} {
		for _, packed := range []bool{false, true} {
			proc := t.TempDir()
			writeKernelConfig(t, proc, c.config, packed)
			got := describeKernelConfig(proc, "6.18.4")
			if ok := got == c.want || strings.HasPrefix(c.want, "; unknown") && strings.HasPrefix(got, c.want); !ok {
				t.Errorf("%s, packed %v: %q, want %q", name, packed, got, c.want)
			}
		}
	}
}

// writeKernelConfig puts a kernel's configuration where a kernel shows it, packed, or where distributions have it.
func writeKernelConfig(t *testing.T, proc, config string, packed bool) {
	t.Helper()
	if config == "" {
		return
	}
	path := filepath.Join(proc, "1/root/boot/config-6.18.4")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if packed {
		path = filepath.Join(proc, "config.gz")
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !packed {
		_, err = f.WriteString(config)
	} else {
		z := gzip.NewWriter(f)
		_, err = z.Write([]byte(config))
		if closed := z.Close(); err == nil {
			err = closed
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestLacksCalls: the calls are told apart from those that a kernel does not know: this one runs the other tests.
func TestLacksCalls(t *testing.T) {
	if lacksCalls() {
		t.Error("this kernel is said to lack calls")
	}
}
