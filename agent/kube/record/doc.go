// Package record keeps what a node knows of the checkpoints that were requested in its cluster, and finds a request's
// snapshot in it. It knows no API server and begins nothing: package request does both.
//
// A checkpoint is in up to three places at a time:
//
//   - Jobs has those that this process carries out, until their answer was seen.
//   - Reported has the requests of the agent's journal, as the agent has last reported them.
//   - The Ledger has entries in files: what else must survive a restart of the agent.
//
// Three types say who asks:
//
//   - A Requester is the name of an object, a trigger or a pod, to be requeued. A pod may ask again under this name.
//   - An Asker identifies one request of the object. It stays the same when the request is retried, and is new when the
//     pod's annotation gets a new value.
//   - A mark is what the name of a snapshot says about its asker. By its mark a snapshot is found again after a crash.
package record
