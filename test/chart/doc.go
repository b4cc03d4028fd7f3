// Package chart tests the Helm chart, charts/diapause, with Helm as a library: what it renders with which values, and
// that it is what manifests/ installs. It is a module of its own, since Helm brings many others.
package chart
