// Package traffic tells which packets come for a pod: from whom, by which protocol, and for which port. It reads them
// at the pod's interfaces, beside the sandbox, which notices nothing.
package traffic
