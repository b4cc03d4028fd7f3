// Package asleep has the files that say which pods of this node sleep, and which slept when it went down: the marks and
// the reminders. It neither puts pods to sleep nor wakes them.
package asleep
