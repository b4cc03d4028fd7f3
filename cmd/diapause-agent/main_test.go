package main

import (
	"strings"
	"testing"
	"time"

	"diapause.dev/agent"
)

func TestCheck(t *testing.T) {
	good := agent.Config{Store: "dir:/store", CaptureTime: time.Minute}
	if err := check(good); err != nil {
		t.Error(err)
	}
	for flag, change := range map[string]func(*agent.Config){
		"--store":        func(c *agent.Config) { c.Store = "/store" },
		"--arena":        func(c *agent.Config) { c.Arena = -1 },
		"--cache-size":   func(c *agent.Config) { c.CacheSize = -1 },
		"--capture-time": func(c *agent.Config) { c.CaptureTime = 0 },
	} {
		bad := good
		change(&bad)
		if err := check(bad); err == nil || !strings.HasPrefix(err.Error(), flag) {
			t.Errorf("%s: %v", flag, err)
		}
	}
}
