// Package volume puts the trees of a pod's emptyDir volumes, as far as they lie on the node, into
// streams, and streams back into the volumes of another pod.
//
// A stream is a PAX archive (package archive/tar) that begins with the volume's own directory. It
// has directories, files, symbolic and hard links and named pipes, with modes, owners, the extended
// attributes that an application can set (user.*) and times of modification to the nanosecond. Of a
// file with holes it has the data alone. Sockets and devices are left out: neither means anything
// without the process or the node behind it.
//
// What is in a volume was written by a sandbox, and a stream by whoever: no name in either leads out
// of the volume, for every step is taken from the descriptor of a directory to one name in it,
// and never through a symbolic link.
//
// A volume that is being filled bears a mark, in an extended attribute of its directory that no
// sandbox sees. What a process leaves half done that died meanwhile is so known, and taken out
// before the pod is started again.
package volume
