package kube

// Agents exports agents for tests.
var Agents = (*Cluster).agents
