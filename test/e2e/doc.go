// Package e2e proves Diapause on Kubernetes: a bed of two nodes with an object store, the agents
// installed from manifests/ as a user installs them, and pods that are frozen and brought back by
// what a user or the Agent Sandbox SDK says to the API server. Every test looks into the memory and
// the files of the pods, not at conditions alone.
package e2e
