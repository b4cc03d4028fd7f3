// Package plugin has the commands of kubectl diapause. They read and write objects of the cluster, with the rights of
// the user's kubeconfig; agents and controller do the work. A result goes to the standard output, and what happens
// meanwhile to the standard error.
package plugin
