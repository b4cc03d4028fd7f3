package sidecar

import (
	"bytes"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/sentry/memmap"
)

var messages = []Message{
	{Kind: KindHello, Text: `{"diapause":1}`},
	{Kind: KindCompleted, ID: 7, Size: 1 << 40, EOF: true},
	{
		Kind: KindRead, ID: 1 << 63, File: 2, Dest: 3, Off: 1 << 50,
		Ranges: []memmap.FileRange{{Start: 0, End: 4096}, {Start: 8192, End: 12288}},
	},
	{Kind: KindOpened, ID: 1, Text: strings.Repeat("é", 100)},
}

func TestMessageRoundTrip(t *testing.T) {
	for _, m := range messages {
		var got Message
		if err := got.Parse(m.Append(nil)); err != nil {
			t.Errorf("%+v: %v", m, err)
		} else if !reflect.DeepEqual(got, m) {
			t.Errorf("got %+v, want %+v", got, m)
		}
	}
}

func TestMessageRefusesWhatIsOutOfBounds(t *testing.T) {
	for _, m := range []Message{
		{Kind: 0},
		{Kind: kindEnd},
		{Kind: KindRead, Off: -1},
		{Kind: KindRead, Ranges: []memmap.FileRange{{Start: 4096, End: 4096}}},
		{Kind: KindRead, Ranges: []memmap.FileRange{{Start: 4096, End: 0}}},
		{Kind: KindRead, Ranges: []memmap.FileRange{{Start: 0, End: MaxRead + 1}}},
		{Kind: KindRead, Ranges: []memmap.FileRange{{Start: 0, End: MaxRead}, {Start: 0, End: 1}}},
		{Kind: KindWrite, Ranges: []memmap.FileRange{{Start: 0, End: MaxWrite}, {Start: 0, End: 1}}},
		{Kind: KindRead, Ranges: make([]memmap.FileRange, MaxRanges+1)},
	} {
		if err := new(Message).Parse(m.Append(nil)); err == nil {
			t.Errorf("taken: kind %d, offset %d, %d ranges", m.Kind, m.Off, len(m.Ranges))
		}
	}
}

func FuzzMessage(f *testing.F) {
	for _, m := range messages {
		f.Add(m.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m Message
		if m.Parse(b) != nil {
			return
		}
		most := uint64(MaxRead)
		if m.Kind == KindWrite {
			most = MaxWrite
		}
		if m.Total() > most || len(m.Ranges) > MaxRanges || m.Off < 0 {
			t.Fatalf("out of bounds: %+v", m)
		}
		if again := m.Append(nil); !bytes.Equal(again, b) {
			t.Fatalf("%x encodes as %x", b, again)
		}
	})
}

func TestOptions(t *testing.T) {
	want := Options{Socket: "/run/s", Request: "r", Token: "t", Direction: Restore}
	dir := t.TempDir()
	if err := want.Write(dir); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(dir + "/" + OptionsFile)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	got, err := ReadOptions(file)
	want.Diapause = optionsFormat
	if err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	for name, text := range map[string]string{
		"not JSON":          "hello",
		"gVisor's own":      `{"bucket":"b"}`,
		"another format":    `{"diapause":2,"socket":"/s","request":"r","token":"t","direction":"restore"}`,
		"unknown direction": `{"diapause":1,"socket":"/s","request":"r","token":"t","direction":"up"}`,
		"relative socket":   `{"diapause":1,"socket":"s","request":"r","token":"t","direction":"restore"}`,
		"no token":          `{"diapause":1,"socket":"/s","request":"r","direction":"restore"}`,
		"too long":          `{"diapause":1,"socket":"/` + strings.Repeat("s", maxOptions) + `"}`,
	} {
		if o, err := ReadOptions(strings.NewReader(text)); err == nil {
			t.Errorf("%s: taken as %+v", name, o)
		}
	}
}

// TestRunForSomethingElse: runsc must have started the sidecar for the direction of the request.
func TestRunForSomethingElse(t *testing.T) {
	for d, a := range map[Direction]Args{
		Checkpoint: {RootfsWrites: true, Reads: true}, RootfsCheckpoint: {Writes: true, RootfsReads: true},
		Restore: {RootfsReads: true, Writes: true}, RootfsRestore: {Reads: true, RootfsWrites: true},
		Workload: {RootfsWrites: true},
	} {
		dir := t.TempDir()
		if err := (Options{Socket: dir + "/none", Request: "r", Token: "t", Direction: d}).Write(dir); err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Open(dir+"/"+OptionsFile, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		a.OptionsFD = fd
		if err := Run(a, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "something else") {
			t.Errorf("%s with %+v: %v", d, a, err)
		}
	}
}

func FuzzOptions(f *testing.F) {
	f.Add([]byte(`{"diapause":1,"socket":"/s","request":"r","token":"t","direction":"restore"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := parseOptions(b)
		if err == nil && (o.Token == "" || o.Socket[0] != '/') {
			t.Fatalf("taken: %+v", o)
		}
	})
}

func TestParseArgs(t *testing.T) {
	a, err := ParseArgs([]string{
		"--root=/run", "--debug-log-fd=6", "checkpointgofer", "-sock-fd=3", "-gcs-opts-fd=4",
		"-allow-checkpoint-reads",
	})
	if want := (Args{SockFD: 3, OptionsFD: 4, DebugLogFD: 6, Reads: true}); err != nil || a != want {
		t.Errorf("got %+v, %v, want %+v", a, err, want)
	}
	for arg, want := range map[string]Args{
		"-allow-checkpoint-writes":    {Writes: true},
		"--allow-fscheckpoint-writes": {RootfsWrites: true},
		"-allow-fscheckpoint-reads":   {RootfsReads: true},
	} {
		want.SockFD, want.OptionsFD, want.DebugLogFD = 3, 4, -1
		if a, err := ParseArgs([]string{"-sock-fd=3", "-gcs-opts-fd=4", arg}); err != nil || a != want {
			t.Errorf("%s: got %+v, %v", arg, a, err)
		}
	}
	for _, argv := range [][]string{
		nil,
		{"-sock-fd=3"},
		{"-sock-fd=x", "-gcs-opts-fd=4"},
		{"-sock-fd=-1", "-gcs-opts-fd=4"},
	} {
		if a, err := ParseArgs(argv); err == nil {
			t.Errorf("%v: taken as %+v", argv, a)
		}
	}
}
