package main

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"

	"diapause.dev/agent"
	"diapause.dev/agent/errkind"
)

func TestCheck(t *testing.T) {
	good := agent.Config{Store: "dir:/store", Memory: 1, CaptureTime: time.Minute}
	if err := check(good); err != nil {
		t.Error(err)
	}
	for flag, change := range map[string]func(*agent.Config){
		"--store":             func(c *agent.Config) { c.Store = "/store" },
		"--arena":             func(c *agent.Config) { c.Arena = -1 },
		"--precopy-from":      func(c *agent.Config) { c.PrecopyFrom = -1 },
		"--precopy-time":      func(c *agent.Config) { c.PrecopyTime = -1 },
		"--checkpoint-memory": func(c *agent.Config) { c.Memory = 0 },
		"--disk-floor":        func(c *agent.Config) { c.DiskFloor = 100 },
		"--backlog-size":      func(c *agent.Config) { c.BacklogSize = -1 },
		"--backlog-count":     func(c *agent.Config) { c.BacklogCount = -1 },
		"--ready-memory":      func(c *agent.Config) { c.ReadyMemory = -1 },
		"--wake-reserve":      func(c *agent.Config) { c.WakeReserve = -1 },
		"--cache-size":        func(c *agent.Config) { c.CacheSize = -1 },
		"--capture-time":      func(c *agent.Config) { c.CaptureTime = 0 },
	} {
		bad := good
		change(&bad)
		if err := check(bad); err == nil || !strings.HasPrefix(err.Error(), flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}

// TestExitCode: a wrong command line and a failure have different exit codes.
func TestExitCode(t *testing.T) {
	for _, args := range [][]string{
		{"--no-such-flag"},
		{"--arena=many"},
		{"freeze"},
		{"--store=/store"},
		{"--log-level=loud"},
		{"--log-format=xml"},
		{"install", "--no-such-flag"},
		{"install", "here"},
		{"install", "--log-level=loud"},
		{"uninstall", "--restart="},
		{"make-store"},
		{"make-store", "--store=/store"},
		{"make-store", "here"},
		{"rotate-keys"},
		{"rotate-keys", "--encryption-keys=/keys", "--store=/store"},
		{"rotate-keys", "--encryption-keys=/keys", "a", "b"},
		{"adopt", "here"},
		{"adopt", "--store=/store"},
		{"adopt", "--log-level=loud"},
		{"adopt", "--trusted-keys=/no/such/file"},
		{"controller", "here"},
		{"controller", "--store=/store"},
		{"controller", "--log-level=loud"},
		{"controller", "--log-format=JSON"},
	} {
		if err := execute(t.Context(), args); exitCode(err) != errkind.ExitUsage {
			t.Errorf("%q: exit code %d: %v", args, exitCode(err), err)
		}
	}
	if err := execute(t.Context(), []string{"--version"}); exitCode(err) != errkind.ExitOK {
		t.Errorf("--version: %v", err)
	}
	if code := exitCode(errors.New("disk full")); code != errkind.ExitFailure {
		t.Errorf("a failure: exit code %d", code)
	}
}

// TestMemoryLimitOfDaemonSet: the limit in the manifest leaves the agent 2 GiB besides its default for checkpoints.
func TestMemoryLimitOfDaemonSet(t *testing.T) {
	manifest, err := os.ReadFile("../../manifests/daemonset.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var set appsv1.DaemonSet
	if err := yaml.UnmarshalStrict(manifest, &set); err != nil {
		t.Fatal(err)
	}
	agent := set.Spec.Template.Spec.Containers[0]
	if got := agent.Resources.Limits.Memory().Value(); got != defaultMemory+2<<30 {
		t.Errorf("the limit is %d bytes", got)
	}
	for _, arg := range agent.Args {
		if strings.HasPrefix(arg, "--checkpoint-memory") {
			t.Errorf("%s: the limit is made for the default", arg)
		}
	}
}
