// Package dir keeps a store in a directory of a local file system. It is the default store, and the form of every
// spool.
//
// An object is a file below the root, whose path is the object's name. It is written under another name in .tmp,
// synced, and then linked to its own name; the link fails if the name exists already. Then the directories above it are
// synced. So after a power failure the object is whole or absent. A delete removes directories that it leaves empty.
// Therefore missing directories are made in .tmp around the object, and renamed with the object in them. An Open
// removes what a dead writer left in .tmp once it is an hour old. Such files are never listed.
//
// All access goes through an os.Root: no name and no symbolic link leads out of the directory. Several processes may
// have one directory open. The file system must have hard links. On a network file system, the guarantees are only as
// good as its protocol.
package dir
