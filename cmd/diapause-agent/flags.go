package main

import (
	"github.com/spf13/pflag"

	"diapause.dev/agent"
	"diapause.dev/agent/place"
)

// watching registers the flags by which an operator watches the agent or the controller.
func watching(f *pflag.FlagSet, cfg *agent.Config, logs *logging) {
	f.StringVar(&cfg.MetricsAddr, "metrics", "", "loopback host:port to serve Prometheus metrics on (default: none)")
	logs.register(f, "info")
}

// storeFlags registers the flags that say where snapshots are, for the agent and the controller.
func storeFlags(f *pflag.FlagSet, cfg *agent.Config) {
	f.StringVar(&cfg.Store, "store", place.Default,
		"where snapshots live: "+place.Forms)
	f.StringVar(&cfg.StoreID, "store-id", "",
		"identity that the store must have, from diapause store stat; the agent then makes no store (default: the identity "+
			"of the store that this node opened first)")
	f.BoolVar(&cfg.AcceptNetworkDirectory, "accept-network-directory", false,
		"use a directory as a store even if nodes may see each other's changes late there, as on NFS with caches, SMB, FUSE "+
			"or 9p; snapshots may be lost")
	f.StringVar(&cfg.Credentials, "bucket-credentials", "",
		"directory of credentials: a Google credentials file BUCKET.json, AWS's BUCKET.ini, or ACCOUNT.CONTAINER.ini for "+
			"Azure, for each bucket that this process does not reach by its own identity; a file that is replaced counts "+
			"within the hour (default: its own identity for all buckets)")
	f.StringVar(&cfg.Keys, "encryption-keys", "",
		"directory of the keys that encrypt snapshots: a file for each namespace, and a file named default for the others "+
			"(default: no encryption)")
}
