// Package capture takes the image files of a checkpoint from the sentry.
//
// It is the server side of a stateipc connection: the sentry opens its image files for
// writing, registers its memory files, and names the ranges that make up pages.img; Pages copies
// them straight out of the memory files while the sandbox is paused. Nothing else happens inside
// the pause: no compression, no digest, no disk, no network.
//
// The capture of pages stands behind an interface (Pages). Arena copies every range into warm
// memory; Discard copies nothing and shows the floor under any capture.
package capture
