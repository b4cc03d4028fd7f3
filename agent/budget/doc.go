// Package budget bounds what checkpoints take of a node, before a sandbox is paused.
//
// There are three budgets. Memory is shared by all checkpoints under way: who finds it in use waits. Disk keeps a part
// of the spool's disk free. Replication bounds the snapshots that are in the spool and not in their store yet. Whoever
// does not fit into the last two is refused. A refusal is of kind errkind.ErrBudget: it names the budget, its figures
// and the agent's argument.
//
// Pods of one namespace are taken for one tenant. No tenant can take a budget away from another for longer than its
// checkpoints under way last: memory goes to the waiting namespace that holds the least, in turns, and half of the
// budget for replication is the most for one namespace.
package budget
