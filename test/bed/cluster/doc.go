// Package cluster proves the Kubernetes beds of package bed: the API server alone, and a
// cluster of two nodes.
package cluster
