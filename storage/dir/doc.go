// Package dir keeps a store in a directory of a local file system: the embedded default, and the
// form of every spool.
//
// An object is a file of the object's name below the root. It is written under another name in
// .tmp, synced, and only then given its own name, which fails if there is one already (a hard
// link); then the directories above it are synced. A power cut leaves the object whole or absent.
// Directories that it needs are made in .tmp as well, around it, and renamed with it in them, since
// a delete removes those that it leaves empty. What a writer that died left in .tmp is removed by an
// Open an hour later; it is never listed.
//
// All access goes through an os.Root: no name and no symbolic link leads out of the directory.
// Several processes may have one directory open. The file system must have hard links; on a network
// file system the promises are those of its protocol.
package dir
