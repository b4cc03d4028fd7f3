package kube

// Agents is for tests.
var Agents = (*Cluster).agents
