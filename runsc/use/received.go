package use

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Received returns how many IP packets have come for a network namespace, from the files snmp and snmp6 in the
// directory of the kernel about it (proc_pid_net(5)). The questions of neighbors for addresses do not count: ARP is not
// IP, and over IPv6 they are multicasts, none of which counts. The kernel counts packets for its own network stack,
// though gVisor has taken the addresses.
func Received(dir string) (packets uint64, err error) {
	text, err := os.ReadFile(filepath.Join(dir, "snmp"))
	if err != nil {
		return 0, err
	}
	if packets, err = receivedIPv4(string(text)); err != nil {
		return 0, err
	}
	text, err = os.ReadFile(filepath.Join(dir, "snmp6"))
	if errors.Is(err, os.ErrNotExist) { // the kernel has no IPv6
		return packets, nil
	}
	if err != nil {
		return 0, err
	}
	six, err := receivedIPv6(string(text))
	return packets + six, err
}

// receivedIPv4 returns the counter InReceives. A line names the counters, and the next one has them.
func receivedIPv4(snmp string) (uint64, error) {
	var names []string
	for line := range strings.Lines(snmp) {
		f := strings.Fields(line)
		if len(f) == 0 || f[0] != "Ip:" {
			continue
		}
		if names == nil {
			names = f
			continue
		}
		if i := slices.Index(names, "InReceives"); i > 0 && i < len(f) {
			return counter("InReceives", f[i])
		}
	}
	return 0, errors.New("the kernel counts no packets of IP")
}

// receivedIPv6 returns how many packets came that were no multicasts. There is a line for each counter.
func receivedIPv6(snmp6 string) (uint64, error) {
	var all, multicasts uint64
	for line := range strings.Lines(snmp6) {
		f := strings.Fields(line)
		if len(f) != 2 {
			continue
		}
		var err error
		switch f[0] {
		case "Ip6InReceives":
			all, err = counter(f[0], f[1])
		case "Ip6InMcastPkts":
			multicasts, err = counter(f[0], f[1])
		}
		if err != nil {
			return 0, err
		}
	}
	return all - min(all, multicasts), nil // they are not read at the same instant
}

func counter(name, text string) (uint64, error) {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("counter %s: %w", name, err)
	}
	return n, nil
}
