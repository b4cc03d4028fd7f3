// Package volume saves the trees of a pod's emptyDir volumes to streams, and puts streams back into the volumes of
// another pod. It handles only volumes that lie on the node.
//
// A stream is a PAX archive (package archive/tar) that begins with the volume's own directory. It contains
// directories, files, symbolic and hard links and named pipes. It keeps modes, owners, the extended attributes that
// an application can set (user.*), and times of modification to the nanosecond. Of a file with holes it has only the
// data. It leaves out sockets and devices: they mean nothing without the process or the node behind them.
//
// A sandbox has written what is in a volume, and anybody may have written a stream. No name in either leads out of
// the volume. Every step goes from the descriptor of a directory to one name in it, and never through a symbolic
// link.
//
// A volume that is being filled has a mark, in an extended attribute of its directory that no sandbox sees. If a
// process dies halfway, the mark shows it, and what was written is removed before the pod is started again.
package volume
