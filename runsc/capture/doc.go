// Package capture takes the image files of a checkpoint from the sentry.
//
// A sidecar passes on what the sentry asks of it: it opens image files for writing, registers memory files, and names
// the ranges that make up pages.img. Both may be hostile: everything is checked and bounded. Pages copies these ranges
// straight out of the memory files while the sandbox is paused. Nothing is compressed, digested or sent during the
// pause. Only pages that do not fit into memory are written to disk.
//
// How pages are captured is behind the interface Pages. Arena copies every range into warm memory. Discard copies
// nothing, which shows the shortest pause that any capture can have.
package capture
