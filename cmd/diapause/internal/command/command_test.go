package command

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"diapause.dev/agent/errkind"
	localv1 "diapause.dev/api/local/v1"
	"diapause.dev/test/privileged"
)

func progressOf(stage string, done, total int64) *localv1.Progress {
	return &localv1.Progress{Stage: stage, Done: done, Total: total}
}

func checkpointEvents() []*localv1.CheckpointEvent {
	spooled := sample()
	spooled.Replicated = false
	return []*localv1.CheckpointEvent{
		{Event: &localv1.CheckpointEvent_Accepted{Accepted: "r-1"}},
		{Event: &localv1.CheckpointEvent_Progress{Progress: progressOf("capture", 64<<20, 256<<20)}},
		{Event: &localv1.CheckpointEvent_Spooled{Spooled: spooled}},
		{Event: &localv1.CheckpointEvent_Progress{Progress: progressOf("replicate", 0, 0)}},
		{Event: &localv1.CheckpointEvent_Done{Done: sample()}},
	}
}

func restoreEvents(names ...string) []*localv1.RestoreEvent {
	var events []*localv1.RestoreEvent
	for _, n := range names {
		p := &localv1.RestoredPod{
			Id: n + "-0123456789abcdef", Name: n, Namespace: "default", Ip: "10.0.0.7",
			Took: durationpb.New(300 * time.Millisecond),
		}
		events = append(events, &localv1.RestoreEvent{Event: &localv1.RestoreEvent_Restored{Restored: p}},
			&localv1.RestoreEvent{Event: &localv1.RestoreEvent_Loaded{Loaded: p}})
	}
	return events
}

func verifyEvents(ok bool, problems ...string) []*localv1.VerifyEvent {
	return []*localv1.VerifyEvent{
		{Event: &localv1.VerifyEvent_Progress{Progress: progressOf("read", 1, 2)}},
		{Event: &localv1.VerifyEvent_Result{Result: &localv1.VerifyResult{
			Namespace: "default", Snapshot: "counter-1", Ok: ok,
			Problems: problems,
		}}},
	}
}

func healthy() *localv1.StatusResponse {
	return &localv1.StatusResponse{
		Version: "v0.1", Node: "node0", Store: "dir:/store", Facts: &localv1.Facts{RunscVersion: "v1"},
		Checks: []*localv1.Check{{Name: "containerd", Ok: true, Detail: "v2.4.2"}},
	}
}

func full() *recorder {
	return &recorder{
		checkpoint: checkpointEvents(),
		restore:    restoreEvents("a", "b"),
		list: &localv1.ListResponse{
			Snapshots: []*localv1.Snapshot{sample()},
			Damaged:   []string{"default/torn: digest mismatch"},
		},
		verify: verifyEvents(true),
		sweep: []*localv1.SweepEvent{
			{Event: &localv1.SweepEvent_Progress{Progress: progressOf("list", 3, 9)}},
			{Event: &localv1.SweepEvent_Result{Result: &localv1.SweepResult{
				Packs: 2, Bytes: 3 << 20,
				Objects: []string{"default/packs/x"},
			}}},
		},
		stats: []*localv1.StatStoreEvent{
			{Event: &localv1.StatStoreEvent_Progress{Progress: progressOf("dir:/spool", 1, 2)}},
			{Event: &localv1.StatStoreEvent_Result{Result: &localv1.StoreStats{
				Location: "dir:/spool", Spool: true, Snapshots: 2,
				Packs: 3,
			}}},
			{Event: &localv1.StatStoreEvent_Result{Result: &localv1.StoreStats{
				Location: "gs://b/p", Snapshots: 7, Damaged: 1, RawBytes: 2 << 30,
				NamedBytes: 600 << 20, ManifestBytes: 1 << 20, Packs: 9, PackBytes: 300 << 20, UnreferencedPacks: 2,
				UnreferencedBytes: 10 << 20, MissingPacks: 1, DedupRatio: 2.07,
			}}},
		},
		rotation: []*localv1.RotateKeysEvent{
			{Event: &localv1.RotateKeysEvent_Progress{Progress: progressOf("dir:/spool", 1, 2)}},
			{Event: &localv1.RotateKeysEvent_Result{Result: &localv1.RotateKeysResult{
				Location: "dir:/spool", Spool: true,
				Keys: 2, Rewrapped: 1,
			}}},
			{Event: &localv1.RotateKeysEvent_Result{Result: &localv1.RotateKeysResult{
				Location: "gs://b/p", Keys: 40,
				Rewrapped: 33, Denied: 7,
			}}},
		},
		status: healthy(),
		top: &localv1.TopResponse{Sandboxes: []*localv1.SandboxUse{{
			Id: "0123456789abcdef", Pod: "counter",
			Namespace: "default", Memory: 5 << 20, Request: "checkpoint: capture",
		}}},
	}
}

// TestForms runs every command in both output forms.
func TestForms(t *testing.T) {
	tests := []struct {
		args  []string
		table []string       // parts of the table, in order
		json  map[string]any // some fields, by path
	}{
		{
			[]string{"checkpoint", "counter"},
			[]string{"SNAPSHOT", "counter-1", "256.0 MiB", "128.0 MiB", "2.00", "node, store"},
			map[string]any{"request": "r-1", "snapshot.name": "counter-1", "snapshot.replicated": true},
		},
		{
			[]string{"restore", "counter-1", "--count", "2"},
			[]string{"POD ID", "a-0123456789a", "default/a", "10.0.0.7", "300.0 ms", "default/b"},
			map[string]any{"snapshot": "default/counter-1", "pods.0.name": "a", "pods.1.loaded": true, "pods.1.took_ms": 300.0},
		},
		{
			[]string{"ls"},
			[]string{"NAMESPACE", "default", "counter-1"},
			map[string]any{"snapshots.0.raw_bytes": float64(256 << 20), "damaged.0": "default/torn: digest mismatch"},
		},
		{
			[]string{"inspect", "counter-1"},
			[]string{
				"default/counter-1", "app, side", "default/counter-0", "2.00", "1000 (and 24", "amd64", "systrap",
				"avx2 sse4_2", "pages.img", "1022 chunks", "capture", "80.5 ms", "whole", "100.5 ms",
			},
			map[string]any{
				"total_ms": 100.5, "timeline.1.took_ms": 80.5, "facts.runsc_version": "v1", "ratio": 2.0,
				"files.0.name": "checkpoint.img", "created": "2023-11-14T22:13:20Z",
			},
		},
		{
			[]string{"rm", "one", "other/two", "one"},
			[]string{"removed default/one", "removed other/two"},
			map[string]any{"removed.0": "default/one", "removed.1": "other/two"},
		},
		{
			[]string{"verify", "--read-data"},
			[]string{"ok", "default/counter-1"},
			map[string]any{"ok": true, "snapshots.0.name": "counter-1"},
		},
		{
			[]string{"gc", "--dry-run"},
			[]string{"would delete default/packs/x", "would delete 2 packs, 3.0 MiB"},
			map[string]any{"dry_run": true, "packs": 2.0, "bytes": float64(3 << 20)},
		},
		{
			[]string{"store", "stat"},
			[]string{
				"SPOOL", "STORE", "dir:/spool", "gs://b/p", "7 (1 damaged)", "2.0 GiB", "600.0 MiB", "9 (1 missing)",
				"2, 10.0 MiB", "2.07",
			},
			map[string]any{
				"stores.0.spool": true, "stores.1.unreferenced_packs": 2.0, "stores.1.dedup_ratio": 2.07,
				"stores.1.pack_bytes": float64(300 << 20),
			},
		},
		{
			[]string{"key", "rotate"},
			[]string{
				"LOCATION", "REWRAPPED", "DENIED", "dir:/spool", "2", "1", "0", "gs://b/p", "40", "33", "7",
				"may not replace 7 data keys", "diapause-agent rotate-keys",
			},
			map[string]any{
				"stores.0.spool": true, "stores.0.keys": 2.0, "stores.1.rewrapped": 33.0, "stores.1.denied": 7.0,
				"stores.1.location": "gs://b/p",
			},
		},
		{
			[]string{"key", "check"},
			[]string{"LOCATION", "FORMER KEY", "dir:/spool", "2", "1", "gs://b/p", "40", "33"},
			map[string]any{"stores.0.spool": true, "stores.0.keys": 2.0, "stores.1.former": 33.0},
		},
		{
			[]string{"top"},
			[]string{"0123456789abc", "default/counter", "5.0 MiB", "checkpoint: capture", "-"},
			map[string]any{"sandboxes.0.pod": "counter", "sandboxes.0.memory_bytes": float64(5 << 20)},
		},
		{[]string{"doctor"}, []string{"socket", "agent", "containerd"}, map[string]any{"ok": true}},
		{[]string{"version"}, []string{"diapause", "v0.1", "node0"}, map[string]any{"agent": "v0.1", "runsc": "v1"}},
	}
	for _, tt := range tests {
		t.Run(tt.args[0], func(t *testing.T) {
			if tt.args[0] == "doctor" {
				privileged.Need(t, "an agent, which answers only root")
			}
			socket := serve(t, full())
			got := invoke(t.Context(), socket, tt.args...)
			if got.code != errkind.ExitOK {
				t.Fatalf("exit code %d: %s", got.code, got.err)
			}
			inOrder(t, got.out, tt.table)
			got = invoke(t.Context(), socket, append(tt.args, "--output", "json")...)
			if got.code != errkind.ExitOK {
				t.Fatalf("json: exit code %d: %s", got.code, got.err)
			}
			fields(t, got.out, tt.json)
		})
	}
}

func inOrder(t *testing.T, s string, parts []string) {
	t.Helper()
	rest := s
	for _, p := range parts {
		_, after, ok := strings.Cut(rest, p)
		if !ok {
			t.Fatalf("no %q (in this order) in:\n%s", p, s)
		}
		rest = after
	}
}

// fields parses s as one JSON document and compares values at dotted paths.
func fields(t *testing.T, s string, want map[string]any) {
	t.Helper()
	var doc any
	if err := json.Unmarshal([]byte(s), &doc); err != nil {
		t.Fatalf("not one JSON document: %v\n%s", err, s)
	}
	for path, w := range want {
		v := doc
		for step := range strings.SplitSeq(path, ".") {
			switch x := v.(type) {
			case map[string]any:
				v = x[step]
			case []any:
				if i := int(step[0] - '0'); i < len(x) {
					v = x[i]
				} else {
					v = nil
				}
			}
		}
		if !reflect.DeepEqual(v, w) {
			t.Errorf("%s = %v, want %v in\n%s", path, v, w, s)
		}
	}
}

// TestRequests checks the requests that the agent gets.
func TestRequests(t *testing.T) {
	tests := []struct {
		args []string
		want proto.Message
	}{
		{[]string{"checkpoint", "p"}, &localv1.CheckpointRequest{
			Target: "p",
			After:  localv1.AfterMode_AFTER_MODE_LEAVE_RUNNING,
		}},
		{
			[]string{"checkpoint", "--rootfs-only", "p"},
			&localv1.CheckpointRequest{Target: "p", RootfsOnly: true, After: localv1.AfterMode_AFTER_MODE_LEAVE_RUNNING},
		},
		{
			[]string{"checkpoint", "--stop", "--name", "n", "--no-wait", "ns/p"},
			&localv1.CheckpointRequest{
				Target: "ns/p", Name: "n", NoWaitReplicated: true,
				After: localv1.AfterMode_AFTER_MODE_STOP,
			},
		},
		{
			[]string{"restore", "ns/s", "--name", "x", "--count", "2"},
			&localv1.RestoreRequest{Namespace: "ns", Snapshot: "s", Name: "x", Count: 2},
		},
		{
			[]string{"restore", "s", "--allow", "privileged", "--allow=host-path:/a,b"},
			&localv1.RestoreRequest{
				Namespace: "default", Snapshot: "s", Count: 1, Allow: []string{"privileged", "host-path:/a,b"},
			},
		},
		{[]string{"restore", "s", "--namespace", "ns"}, &localv1.RestoreRequest{Namespace: "ns", Snapshot: "s", Count: 1}},
		{[]string{"ls", "-n", "ns"}, &localv1.ListRequest{Namespace: "ns"}},
		{[]string{"inspect", "s"}, &localv1.InspectRequest{Namespace: "default", Snapshot: "s"}},
		{[]string{"rm", "-n", "ns", "s"}, &localv1.RemoveRequest{Namespace: "ns", Snapshot: "s"}},
		{[]string{"verify"}, &localv1.VerifyRequest{}},
		{[]string{"verify", "-n", "ns", "--read-data"}, &localv1.VerifyRequest{Namespace: "ns", ReadData: true}},
		{[]string{"verify", "s"}, &localv1.VerifyRequest{Namespace: "default", Snapshot: "s"}},
		{
			[]string{"verify", "--read-data-subset=2/5", "-n", "blue"},
			&localv1.VerifyRequest{Namespace: "blue", ReadData: true, Part: 2, Parts: 5},
		},
		{
			[]string{"verify", "--read-data-subset", "1/3", "blue/one"},
			&localv1.VerifyRequest{Namespace: "blue", Snapshot: "one", ReadData: true, Part: 1, Parts: 3},
		},
		{[]string{"store", "stat"}, &localv1.StatStoreRequest{}},
		{[]string{"store", "stat", "--namespace", "blue"}, &localv1.StatStoreRequest{Namespace: "blue"}},
		{[]string{"key", "rotate"}, &localv1.RotateKeysRequest{}},
		{[]string{"key", "rotate", "-n", "blue"}, &localv1.RotateKeysRequest{Namespace: "blue"}},
		{[]string{"key", "check", "-n", "blue"}, &localv1.RotateKeysRequest{Namespace: "blue"}},
		{[]string{"gc"}, &localv1.SweepRequest{}},
		{[]string{"gc", "--grace", "0s"}, &localv1.SweepRequest{Grace: durationpb.New(0)}},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			r := full()
			got := invoke(t.Context(), serve(t, r), tt.args...)
			if got.code != errkind.ExitOK && tt.args[0] != "restore" { // a restore of one pod gets two here
				t.Fatalf("exit code %d: %s", got.code, got.err)
			}
			if asked := (<-r.asked).(proto.Message); !proto.Equal(asked, tt.want) {
				t.Errorf("asked %v, want %v", asked, tt.want)
			}
		})
	}
}

// TestCheckpointWarns: what a restore will not bring back is printed.
func TestCheckpointWarns(t *testing.T) {
	r := full()
	const warning = "a restored pod lacks the firewall rules"
	r.checkpoint = append([]*localv1.CheckpointEvent{
		{Event: &localv1.CheckpointEvent_Warning{Warning: warning}},
	}, r.checkpoint...)
	if got := invoke(t.Context(), serve(t, r), "checkpoint", "p"); got.code != errkind.ExitOK ||
		!strings.Contains(got.err, "warning: "+warning) {
		t.Errorf("exit code %d, printed %q", got.code, got.err)
	}
}

// TestErrors checks exit codes and that a message names the object and what to do.
func TestErrors(t *testing.T) {
	tests := []struct {
		name string
		args []string
		set  func(*recorder)
		code int
		says []string
	}{
		{"unknown command", []string{"freeze"}, nil, errkind.ExitUsage, []string{"freeze", "--help"}},
		{"unknown command of a group", []string{"store", "freeze"}, nil, errkind.ExitUsage, []string{"freeze", "--help"}},
		{"unknown flag", []string{"ls", "--hard"}, nil, errkind.ExitUsage, []string{"--hard"}},
		{"argument missing", []string{"inspect"}, nil, errkind.ExitUsage, []string{"accepts 1 arg"}},
		{"output form", []string{"ls", "--output", "xml"}, nil, errkind.ExitUsage, []string{"table or json"}},
		{"bad name", []string{"inspect", "../x/y"}, nil, errkind.ExitUsage, []string{"../x/y"}},
		{"two namespaces", []string{"rm", "-n", "a", "b/s"}, nil, errkind.ExitUsage, []string{"b/s", "--namespace a"}},
		{"bad namespace", []string{"ls", "-n", "A"}, nil, errkind.ExitUsage, []string{"--namespace"}},
		{"count", []string{"restore", "s", "--count", "0"}, nil, errkind.ExitUsage, []string{"--count 0"}},
		{"negative timeout", []string{"ls", "--timeout", "-1s"}, nil, errkind.ExitUsage, []string{"--timeout"}},
		{"bad snapshot name", []string{"checkpoint", "p", "--name", "A/B"}, nil, errkind.ExitUsage, []string{"--name"}},
		{"short interval", []string{"top", "--interval", "1ms"}, nil, errkind.ExitUsage, []string{"--interval"}},
		{
			"short count",
			[]string{"traffic", "--for", "1ms", "counter"},
			nil, errkind.ExitUsage,
			[]string{"--for 1ms", "1s to 1h"},
		},
		{
			"traffic of no pod", []string{"traffic", "ghost"}, nil, errkind.ExitNotFound, []string{"traffic of ghost", "no pod"},
		},
		{"traffic of a pod that sleeps", []string{"traffic", "counter"}, func(r *recorder) {
			r.top.Sandboxes[0].Asleep = timestamppb.Now()
		}, errkind.ExitFailure, []string{"traffic of counter", "it sleeps"}},
		{
			"traffic of an ended sandbox",
			[]string{"traffic", "default/counter"},
			nil, errkind.ExitFailure,
			[]string{"does not run"},
		},
		{"traffic of one of two", []string{"traffic", "counter"}, func(r *recorder) {
			r.top.Sandboxes = append(r.top.Sandboxes, &localv1.SandboxUse{Id: "f", Pod: "counter", Namespace: "other"})
		}, errkind.ExitFailure, []string{"write namespace/name"}},
		{"traffic of the node", []string{"traffic", "counter"}, func(r *recorder) {
			r.top.Sandboxes[0].Process = int32(os.Getpid())
		}, errkind.ExitFailure, []string{"traffic of counter", "hostNetwork"}},
		{
			"not found",
			[]string{"inspect", "missing"},
			nil, errkind.ExitNotFound,
			[]string{"default/missing", "no such snapshot"},
		},
		{
			"all not found",
			[]string{"rm", "missing", "a/missing"},
			nil, errkind.ExitNotFound,
			[]string{"default/missing", "a/missing"},
		},
		{"pod not found", []string{"checkpoint", "ghost"}, func(r *recorder) {
			r.checkpoint, r.err = nil, status.Error(codes.NotFound, "no pod or container of this node has this name or id")
		}, errkind.ExitNotFound, []string{"checkpoint ghost", "no pod"}},
		{"refused", []string{"restore", "s"}, func(r *recorder) {
			r.restore, r.err = nil, status.Error(codes.FailedPrecondition, "a kubelet runs here: use the annotation")
		}, errkind.ExitFailure, []string{"restore default/s", "annotation"}},
		{"object named once", []string{"inspect", "s"}, func(r *recorder) {
			r.err = status.Error(codes.DataLoss, "default/s: manifest: digest mismatch")
		}, errkind.ExitFailure, []string{"inspect: default/s: manifest: digest mismatch"}},
		{"after spooling", []string{"checkpoint", "p"}, func(r *recorder) {
			r.checkpoint, r.err = r.checkpoint[:3], status.Error(codes.Internal, "replicate: disk full")
		}, errkind.ExitFailure, []string{"disk full", "default/counter-1 is restorable on this node"}},
		{
			"no snapshot",
			[]string{"checkpoint", "p"},
			func(r *recorder) { r.checkpoint = r.checkpoint[:2] }, errkind.ExitFailure,
			[]string{"without a snapshot"},
		},
		{"too few pods", []string{"restore", "s", "--count", "3"}, nil, errkind.ExitFailure, []string{"before all pods"}},
		{"no such part", []string{"verify", "--read-data-subset=6/5"}, nil, errkind.ExitUsage, []string{"6/5", "n/t"}},
		{
			"too many parts",
			[]string{"verify", "--read-data-subset=1/3000000000"},
			nil, errkind.ExitUsage,
			[]string{"too many parts"},
		},
		{"hostile namespace", []string{"store", "stat", "-n", ".."}, nil, errkind.ExitUsage, []string{".."}},
		{"no result", []string{"gc"}, func(r *recorder) { r.sweep = nil }, errkind.ExitFailure, []string{"without a result"}},
		{
			"damaged",
			[]string{"verify"},
			func(r *recorder) { r.verify = verifyEvents(false, "packs/1: digest mismatch") },
			errkind.ExitFailure,
			[]string{"1 of 1"},
		},
		{"doctor", []string{"doctor"}, func(r *recorder) {
			r.status.Checks = append(r.status.Checks, &localv1.Check{Name: "runsc", Detail: "not found: install it"})
		}, errkind.ExitFailure, []string{"FAIL"}},
		{
			"agent too old",
			[]string{"ls"},
			func(r *recorder) { r.err = status.Error(codes.Unimplemented, "unknown method") },
			errkind.ExitFailure,
			[]string{"diapause version"},
		},
		{
			"hostile text",
			[]string{"inspect", "s"},
			func(r *recorder) { r.err = status.Error(codes.Internal, "\x1b[2Jgone") },
			errkind.ExitFailure,
			[]string{"?[2Jgone"},
		},
		{
			"late",
			[]string{"gc", "--timeout", "50ms"},
			func(r *recorder) { r.hang = true }, errkind.ExitFailure,
			[]string{"--timeout"},
		},
		{
			"late to connect",
			[]string{"ls", "--timeout", "1ns"},
			nil, errkind.ExitFailure,
			[]string{"cannot reach the agent", "set a longer --timeout"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := full()
			if tt.set != nil {
				tt.set(r)
			}
			got := invoke(t.Context(), serve(t, r), tt.args...)
			if got.code != tt.code {
				t.Errorf("exit code %d, want %d", got.code, tt.code)
			}
			for _, s := range tt.says {
				if !strings.Contains(got.err, s) {
					t.Errorf("no %q in %q", s, got.err)
				}
			}
		})
	}
}

// TestFailuresAsJSON: every failing command prints one document that says why, however early it fails.
func TestFailuresAsJSON(t *testing.T) {
	socket, nobody := serve(t, full()), filepath.Join(t.TempDir(), "agent.sock")
	for _, tt := range []struct {
		socket string
		args   []string
		code   int
		kind   string
		says   string
	}{
		{socket, []string{"inspect", "missing", "-o", "json"}, errkind.ExitNotFound, "not_found", "missing"},
		{nobody, []string{"ls", "--output=json"}, errkind.ExitFailure, "failure", "diapause-agent"},
		{nobody, []string{"checkpoint", "counter", "-o", "json"}, errkind.ExitFailure, "failure", "diapause-agent"},
		{nobody, []string{"restore", "s", "-o", "json"}, errkind.ExitFailure, "failure", "diapause-agent"},
		{socket, []string{"restore", "s", "--count=-1", "-o", "json"}, errkind.ExitUsage, "usage", "--count -1"},
		{socket, []string{"restore", "s", "--nonsense", "-o", "json"}, errkind.ExitUsage, "usage", "nonsense"},
		{socket, []string{"nonsense", "--output", "json"}, errkind.ExitUsage, "usage", "nonsense"},
	} {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			got := invoke(t.Context(), tt.socket, tt.args...)
			if got.code != tt.code {
				t.Errorf("exit code %d, want %d", got.code, tt.code)
			}
			fields(t, got.out, map[string]any{"error_code": tt.kind})
			if !strings.Contains(got.out, tt.says) || !strings.Contains(got.err, tt.says) {
				t.Errorf("no %q in %q or in %q", tt.says, got.out, got.err)
			}
		})
	}
}

// TestMixedFailures: a failure and an object that does not exist have different exit codes.
func TestMixedFailures(t *testing.T) {
	r := full()
	r.err = status.Error(codes.Internal, "disk")
	got := invoke(t.Context(), serve(t, r), "rm", "missing", "s", "--output", "json")
	if got.code != errkind.ExitFailure {
		t.Errorf("exit code %d, want %d", got.code, errkind.ExitFailure)
	}
	fields(t, got.out, map[string]any{"errors.1": "remove default/s: disk"})
}

// TestHalfRestore: pods that came up are printed even if the rest fails.
func TestHalfRestore(t *testing.T) {
	r := full()
	r.restore, r.err = restoreEvents("a"), status.Error(codes.ResourceExhausted, "no memory for b")
	got := invoke(t.Context(), serve(t, r), "restore", "s", "--count", "2", "-o", "json")
	if got.code != errkind.ExitFailure {
		t.Errorf("exit code %d, want %d", got.code, errkind.ExitFailure)
	}
	fields(t, got.out, map[string]any{
		"pods.0.name": "a", "error": "restore default/s: no memory for b",
		"error_code": "resource_exhausted",
	})
}

// TestHalfCheckpoint: if something fails after the snapshot was made, the snapshot is printed all the same, in both
// forms.
func TestHalfCheckpoint(t *testing.T) {
	r := full()
	r.checkpoint, r.err = r.checkpoint[:3], status.Error(codes.Unavailable, "not replicated yet: the store is away")
	socket := serve(t, r)
	half := func(args ...string) string {
		got := invoke(t.Context(), socket, append([]string{"checkpoint", "counter"}, args...)...)
		if got.code != errkind.ExitFailure || !strings.Contains(got.err, "the store is away") {
			t.Errorf("exit code %d, want %d; said %q", got.code, errkind.ExitFailure, got.err)
		}
		return got.out
	}
	fields(t, half("--output", "json"), map[string]any{
		"request": "r-1", "snapshot.name": "counter-1",
		"error": "checkpoint counter: not replicated yet: the store is away\nsnapshot default/counter-1 is restorable on " +
			"this node, but not known to be replicated",
	})
	inOrder(t, half(), []string{"SNAPSHOT", "counter-1", "256.0 MiB"})
}

// TestUnreachable: if a store is unreachable, the snapshots of the others are listed.
func TestUnreachable(t *testing.T) {
	r := full()
	r.list.Damaged, r.list.Unreachable = nil, []string{"open store gs://b/p: refused", "list dir:/q: late"}
	socket := serve(t, r)
	got := invoke(t.Context(), socket, "ls")
	if got.code != errkind.ExitFailure || strings.Contains(got.err, "damaged") || !strings.Contains(got.out, "counter-1") {
		t.Errorf("exit code %d, want %d:\n%s%s", got.code, errkind.ExitFailure, got.out, got.err)
	}
	inOrder(t, got.err, []string{"open store gs://b/p: refused", "list dir:/q: late"})
	if got = invoke(t.Context(), socket, "ls", "-o", "json"); got.code != errkind.ExitFailure {
		t.Errorf("json: exit code %d, want %d", got.code, errkind.ExitFailure)
	}
	fields(t, got.out, map[string]any{"snapshots.0.name": "counter-1", "unreachable.1": "list dir:/q: late"})
}

// TestInterrupt cancels a call the way Ctrl-C does.
func TestInterrupt(t *testing.T) {
	r := full()
	r.checkpoint, r.hang = r.checkpoint[:1], true
	socket := serve(t, r)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan outcome, 1)
	go func() { done <- invoke(ctx, socket, "checkpoint", "p") }()
	<-r.asked
	time.Sleep(50 * time.Millisecond)
	cancel()
	got := <-done
	if got.code != errkind.ExitInterrupted || !strings.Contains(got.err, "request r-1") {
		t.Errorf("exit code %d, want %d; said %q", got.code, errkind.ExitInterrupted, got.err)
	}
}

// TestExplain: an interrupted checkpoint may have gone too far, and the error names its request.
func TestExplain(t *testing.T) {
	run := checkpointRun{request: "r-1"}
	for _, err := range []error{context.Canceled, status.Error(codes.DeadlineExceeded, "late")} {
		if got := run.explain("p", err).Error(); !strings.Contains(got, "request r-1 may have gone too far") {
			t.Errorf("%v is explained as %q", err, got)
		}
	}
	if got := run.explain("p", status.Error(codes.Internal, "disk full")).Error(); strings.Contains(got, "r-1") {
		t.Errorf("a failure is explained as %q", got)
	}
}

// TestAgentAway covers the ways in which no agent answers.
func TestAgentAway(t *testing.T) {
	dead := filepath.Join(t.TempDir(), "dead.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dead, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	for name, socket := range map[string]string{
		"no socket":      filepath.Join(t.TempDir(), "none.sock"),
		"nobody listens": dead,
	} {
		t.Run(name, func(t *testing.T) {
			got := invoke(t.Context(), socket, "ls")
			if got.code != errkind.ExitFailure || !strings.Contains(got.err, socket) ||
				!strings.Contains(got.err, "diapause-agent") {
				t.Errorf("exit code %d, said %q", got.code, got.err)
			}
			if got = invoke(t.Context(), socket, "version"); got.code != errkind.ExitOK ||
				!strings.Contains(got.out, "does not answer") {
				t.Errorf("version: exit code %d, said %q", got.code, got.out)
			}
			if got = invoke(t.Context(), socket, "doctor", "-o", "json"); got.code != errkind.ExitFailure {
				t.Errorf("doctor: exit code %d", got.code)
			}
			fields(t, got.out, map[string]any{"ok": false})
		})
	}
}

func TestProgressLines(t *testing.T) {
	got := invoke(t.Context(), serve(t, full()), "checkpoint", "p")
	inOrder(t, got.err, []string{
		"request r-1\n", "capture: 25% (64.0 MiB of 256.0 MiB)\n",
		"restorable on this node: default/counter-1\n", "replicate\n",
	})
}

// TestGroup: a command that only contains others lists them.
func TestGroup(t *testing.T) {
	got := invoke(t.Context(), "/nonexistent", "store")
	if got.code != errkind.ExitOK || !strings.Contains(got.out, "stat ") {
		t.Errorf("exit code %d: %s%s", got.code, got.out, got.err)
	}
}

func TestCompletion(t *testing.T) {
	got := invoke(t.Context(), serve(t, full()), "__complete", "inspect", "")
	if !slices.Contains(strings.Split(got.out, "\n"), "default/counter-1") {
		t.Errorf("completion offers %q", got.out)
	}
	if got = invoke(t.Context(), "/nonexistent", "completion", "bash"); got.code != errkind.ExitOK || got.out == "" {
		t.Errorf("completion bash: exit code %d", got.code)
	}
}

func TestSocketFromEnvironment(t *testing.T) {
	t.Setenv("DIAPAUSE_SOCKET", serve(t, full()))
	var out, errOut strings.Builder
	if code := Run(t.Context(), []string{"diapause", "ls"}, &out, &errOut); code != errkind.ExitOK {
		t.Errorf("exit code %d: %s", code, errOut.String())
	}
}

// TestVerifySigner: verify says who has signed a snapshot, once if that is the same everywhere.
func TestVerifySigner(t *testing.T) {
	spool, store := &localv1.Signature{Store: "dir:/spool", Signer: "SHA256:a"}, &localv1.Signature{Store: "gs://b"}
	same := &localv1.Signature{Store: "gs://b", Signer: "SHA256:a"}
	for want, signatures := range map[string][]*localv1.Signature{
		"\n      signed by SHA256:a\n":                                                 {spool, same},
		"\n      dir:/spool: signed by SHA256:a\n      gs://b: not signed\n":           {spool, store},
		"\n      not signed, and not restored: see --trusted-keys of diapause-agent\n": {{Store: "gs://b", Refused: true}},
	} {
		r := full()
		r.verify = verifyEvents(true)
		r.verify[1].GetResult().Signatures = signatures
		socket := serve(t, r)
		if got := invoke(t.Context(), socket, "verify"); got.code != errkind.ExitOK || !strings.Contains(got.out, want) {
			t.Errorf("got %d, %q, want %q", got.code, got.out, want)
		}
		got := invoke(t.Context(), socket, "verify", "--output=json")
		if !strings.Contains(got.out, `"signatures"`) ||
			!strings.Contains(got.out, `"store": "`+signatures[0].Store+`"`) {
			t.Errorf("JSON: %s", got.out)
		}
	}
}
