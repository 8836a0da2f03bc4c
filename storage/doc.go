// Package storage places a declared file system tree below a root and records what it placed in a manifest.
//
// The tree is declared once, as Go structs (type [Root]), and read into a [Layout]: a flat list of nodes with path,
// kind, mode and owner. One engine compares a layout with what is there: [NewPlan] only looks, [Place] does what the
// plan says and writes the [Manifest] last, [Check] reports the same comparison as drift.
//
// Rules that hold everywhere in the package:
//
//   - Everything is known before the first write. A conflict, a read-only directory or a missing right is reported by
//     the plan, and then nothing at all is touched.
//   - What is there is never overwritten, emptied or removed.
//   - The target is walked by descriptors, one name at a time. A symbolic link is resolved inside the root, never out
//     of it, and the last name of a file, FIFO or socket is never followed.
//   - Modes are exact whatever the process's umask is.
//   - A run with nothing to do makes no writing system call.
//
// The package logs nothing and reads neither flags nor the environment.
package storage
