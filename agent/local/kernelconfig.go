package local

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// kernelNeed is an option of the kernel's configuration that Diapause uses, and what fails without it.
type kernelNeed struct {
	option string
	under  string // another option of the list, without which this one says nothing new
	loss   string
}

// kernelNeeds returns the options that a kernel may lack. All others that Diapause uses, gVisor needs anyway.
func kernelNeeds() []kernelNeed {
	const (
		noSleep   = "pods cannot sleep"
		noForward = "kubectl port-forward to pods fails"
	)
	return []kernelNeed{
		{"CONFIG_PACKET", "", noSleep},
		{"CONFIG_NF_TABLES", "", noSleep + ", and " + noForward},
		{"CONFIG_NF_TABLES_IPV4", "CONFIG_NF_TABLES", noSleep + ", and " + noForward},
		{"CONFIG_NF_TABLES_IPV6", "CONFIG_NF_TABLES", noSleep},
		{"CONFIG_NFT_TPROXY", "CONFIG_NF_TABLES", noForward},
		{"CONFIG_INET_TCP_DIAG", "", "probes of the kubelet wake pods that sleep"},
	}
}

// maxKernelConfig bounds a kernel's configuration, in bytes. A large one has 300 KB.
const maxKernelConfig = 4 << 20

// describeKernelConfig says what the kernel of this release lacks, by its configuration below the directory proc. Many
// kernels show it there, others as a file of the node's boot directory, and some not at all.
func describeKernelConfig(proc, release string) string {
	config, err := readKernelConfig(proc, release)
	if err != nil {
		return "; unknown whether it has nftables and what else pods that sleep need: " + err.Error()
	}
	var text strings.Builder
	for _, n := range kernelNeeds() {
		if !config[n.option] && (n.under == "" || config[n.under]) {
			fmt.Fprintf(&text, "; attention: without %s %s: use a kernel that has it", n.option, n.loss)
		}
	}
	return text.String()
}

// readKernelConfig returns the options that are set, as part of the kernel or as modules.
func readKernelConfig(proc, release string) (map[string]bool, error) {
	f, err := os.Open(filepath.Join(proc, "config.gz"))
	if err == nil {
		defer f.Close()
		unpacked, err := gzip.NewReader(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name(), err)
		}
		return parseKernelConfig(unpacked)
	}
	// An agent in a container sees the node's files through a process of the node.
	f, err = os.Open(filepath.Join(proc, "1/root/boot", "config-"+filepath.Base(release)))
	if err != nil {
		return nil, fmt.Errorf("the kernel does not show its configuration: %w", err)
	}
	defer f.Close()
	return parseKernelConfig(f)
}

func parseKernelConfig(r io.Reader) (map[string]bool, error) {
	set := make(map[string]bool)
	lines := bufio.NewScanner(io.LimitReader(r, maxKernelConfig))
	for lines.Scan() {
		option, value, _ := strings.Cut(lines.Text(), "=")
		if value == "y" || value == "m" {
			set[option] = true
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("the kernel's configuration: %w", err)
	}
	if !set["CONFIG_NET"] { // no node of a cluster has such a kernel
		return nil, fmt.Errorf("the kernel's configuration has %d options and no network", len(set))
	}
	return set, nil
}
