package local

import (
	"encoding/json"
	"fmt"
	"time"
)

// settings are parts of the configuration that containerd runs with.
type settings struct {
	// statsPeriod is how often containerd asks each sandbox for statistics. 0: it does not, or does not say.
	statsPeriod time.Duration
	// networks are the types of the plugins that make the interfaces of pods. Empty: containerd has loaded none.
	networks []string
}

// defaultStatsPeriod is containerd's, if its configuration has an empty period.
const defaultStatsPeriod = time.Second

// maxNetworks bounds how many plugins are reported.
const maxNetworks = 16

// parseSettings reads the configurations that containerd reports, its own and that of its networks. The second is empty
// if it has none.
func parseSettings(config, networks string) (s settings, err error) {
	var c struct{ StatsCollectPeriod any }
	if err := json.Unmarshal([]byte(config), &c); err != nil {
		return settings{}, fmt.Errorf("its configuration: %w", err)
	}
	// Before containerd 2.4 this setting is a number, and is about its snapshots on disk alone.
	if text, ok := c.StatsCollectPeriod.(string); ok {
		if s.statsPeriod, err = time.ParseDuration(text); err != nil {
			s.statsPeriod = defaultStatsPeriod // as containerd does
		}
	}
	if networks == "" {
		return s, nil
	}
	var n struct {
		Networks []struct {
			Config struct {
				Plugins []struct{ Network struct{ Type string } }
			}
		}
	}
	if err := json.Unmarshal([]byte(networks), &n); err != nil {
		return settings{}, fmt.Errorf("its networks: %w", err)
	}
	for _, network := range n.Networks {
		// The first plugin makes the interface, the others change it.
		if p := network.Config.Plugins; len(p) > 0 && p[0].Network.Type != "loopback" && len(s.networks) < maxNetworks {
			s.networks = append(s.networks, p[0].Network.Type)
		}
	}
	return s, nil
}
