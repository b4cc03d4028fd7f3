// Package programs holds real programs, as images of Debian's packages, with clients that put load on them and know
// afterwards what must be there: the benchmark of programs checkpoints them meanwhile.
//
// A client writes numbered values, 1, 2, 3, …, on several streams at once, each over its own connection and one at a
// time. A write that the program has acknowledged must be in every snapshot that is made later. What is
// found in a program is therefore, of each stream, the numbers 1 to n, and n has to be at least the last number that
// was acknowledged before the pause, and at most the last that was sent before it ended.
package programs
