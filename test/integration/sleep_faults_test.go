package integration

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"diapause.dev/test/bed"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func removal(id string) *cri.RemoveContainerRequest {
	return &cri.RemoveContainerRequest{ContainerId: id}
}

// TestSleepDiskFull puts pods to sleep for whose snapshot there is no room: they stay awake.
func TestSleepDiskFull(t *testing.T) {
	at := newPlace(t)
	tmpfs(t, at.state, "size=6m")
	n := start(t, at.flags("--disk-floor=0")...) // which would refuse what has no room
	p := n.sleeper("full", "--mib", "32")
	before := n.serving(p)
	for range 2 {
		n.refusedSleep(p, "no space left", at.state)
		if err := n.topsAsleep(p, false); err != nil {
			t.Error(err)
		}
		n.alive(p, before)
	}
	n.resize(at.state, "size=512m")
	n.asleep(p)
	n.alive(p, before)
	n.settled(at)
}

// TestSleepStoreAway puts a pod to sleep while its store does not answer: it stays awake, since its snapshot would be
// on the node only. A pod that sleeps needs no store.
func TestSleepStoreAway(t *testing.T) {
	store, err := bed.StartGCS(t.Context(), "bucket")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Kill)
	gate := new(sync.RWMutex)
	t.Setenv("STORAGE_EMULATOR_HOST", gated(t, store.Address, gate))
	n := start(t, "--state-dir="+t.TempDir(), "--store=gs://bucket")
	p := n.sleeper("cut-off", "--mib", "8")
	before := n.serving(p)
	func() {
		gate.Lock()
		defer gate.Unlock()
		n.refusedSleep(p, "on this node only")
		n.alive(p, before)
	}()
	n.asleep(p)
	gate.Lock()
	defer gate.Unlock()
	n.alive(p, before)
}

// TestSleepOtherRunsc has the node get a runsc of another version while a pod sleeps, which cannot restore it: its
// containers end, and the agent's log says why.
func TestSleepOtherRunsc(t *testing.T) {
	n := start(t, "--ready-memory=0") // a pod that is ready wakes by the former one: see TestReadyOtherRunsc
	runsc := n.copyRunsc()
	p := n.sleeper("outdated", "--mib", "8")
	n.asleep(p)
	n.nextVersion(runsc)
	if _, err := n.cli("wake", p.ID); err == nil || !strings.Contains(err.Error(), "version") {
		t.Errorf("error %v", err)
	}
	n.endedWith(p, "app", 128)
	n.endedWith(p, "log", 128)
	if log := n.agent.Log(); !strings.Contains(log, "restore failed in the shim") {
		t.Error("the agent's log does not say that the pod could not be woken")
	}
	n.removed(p)
}

// copyRunsc gives the node a runsc of its own, and returns its path.
func (n *node) copyRunsc() string {
	n.Helper()
	dir, err := os.MkdirTemp("", "runsc") // goes with the bed, whose pods need it to the end
	must(n.T, err)
	must(n.T, os.MkdirAll(filepath.Join(dir, "gvisor-bin"), 0o755))
	for _, name := range []string{"runsc", "gvisor-bin/checkpointgofer"} {
		data, err := os.ReadFile(n.bed.Bin.Path(name))
		must(n.T, err, os.WriteFile(filepath.Join(dir, name), data, 0o755))
	}
	config, err := os.ReadFile(bed.RunscFile)
	path := filepath.Join(dir, "runsc")
	must(n.T, err, os.WriteFile(bed.RunscFile,
		[]byte(strings.ReplaceAll(string(config), n.bed.Bin.Path("runsc"), path)), 0o644))
	return path
}

// nextVersion makes a program of runsc one of another version.
func (n *node) nextVersion(path string) {
	n.Helper()
	out, err := exec.CommandContext(n.ctx, path, "--version").Output()
	must(n.T, err)
	version := bytes.Fields(bytes.Split(out, []byte("\n"))[0])[2] // "runsc version X"
	other := bytes.Clone(version)
	other[len(other)-1] ^= 1
	data, err := os.ReadFile(path)
	must(n.T, err)
	changed := bytes.ReplaceAll(data, version, other)
	if bytes.Equal(changed, data) {
		n.Fatalf("version %q is not in the program", version)
	}
	must(n.T, os.WriteFile(path+".new", changed, 0o755), os.Rename(path+".new", path))
}

// TestSleepEncrypted has a pod sleep whose namespace has a key: it is woken with the key, and sleeps on without it.
func TestSleepEncrypted(t *testing.T) {
	keys, key := keyFile(filepath.Join(t.TempDir(), "default")), newKey()
	keys.write(t, key)
	n := start(t, "--encryption-keys="+filepath.Dir(string(keys)))
	p := n.sleeper("locked", "--mib", "8")
	before := n.serving(p)
	for range 2 {
		n.asleep(p)
		n.alive(p, before)
	}
	n.asleep(p)
	n.restartAgent("--encryption-keys=" + filepath.Dir(string(keys)))
	n.alive(p, before)
	n.asleep(p)
	n.agent.Kill()
	must(t, os.Remove(string(keys)))
	n.startAgent("--encryption-keys=" + filepath.Dir(string(keys)))
	_, err := n.cli("wake", "--timeout=5s", p.ID)
	if err == nil || !strings.Contains(err.Error(), "encryption key missing") {
		t.Errorf("woken without a key: %v", err)
	}
	if err := n.topsAsleep(p, true); err != nil {
		t.Error(err)
	}
	keys.write(t, key)
	n.restartAgent("--encryption-keys=" + filepath.Dir(string(keys)))
	n.alive(p, before)
}

// TestSleepMeetsOthers asks for the sleep of pods that are being checkpointed, restored and removed.
func TestSleepMeetsOthers(t *testing.T) {
	at := newPlace(t)
	n := start(t, at.flags()...)
	p := n.sleeper("busy", "--mib", "64")
	before := n.serving(p)
	slept := make(chan error, 1)
	if err := n.during("capture", request(p, false), func() {
		go func() { slept <- n.trySleep("", p) }()
	}); err != nil {
		t.Error(err)
	}
	if err := <-slept; err != nil { // it waited for its turn
		t.Errorf("a pod that was being checkpointed: %v", err)
	}
	n.alive(p, before)

	origin := n.workload("origin", "serve", "--mib=64")
	before = n.serving(origin)
	n.checkpoint("--name=saved", origin.ID)
	for i := range 3 {
		again, err := n.bed.RunPod(n.ctx, fromSnapshot(fmt.Sprint("again-", i), "default/saved", "serve", "--mib=64"))
		must(t, err)
		if err := n.trySleep("", again); err != nil {
			t.Errorf("a pod that is being restored: %v", err)
		}
		n.alive(again, before)
		n.removed(again)
	}
	for _, after := range []time.Duration{0, 50 * time.Millisecond, 150 * time.Millisecond, 300 * time.Millisecond} {
		gone := n.sleeper(fmt.Sprint("gone-", after.Milliseconds()), "--mib", "8")
		go func() {
			_, err := n.cli("sleep", gone.ID)
			slept <- err
		}()
		time.Sleep(after)
		n.removed(gone)
		if err := <-slept; err != nil && !strings.Contains(err.Error(), gone.Name) &&
			!strings.Contains(err.Error(), gone.ID) {
			t.Errorf("removed after %v: %v", after, err)
		}
	}
	n.settled(at)
}

// TestHostilePackets sends a thousand packets a second to a pod that sleeps and cannot wake, because there is no agent.
// Its shim holds no more than it may. Once there is an agent the pod wakes amid the packets, and answers right.
func TestHostilePackets(t *testing.T) {
	const rate, enough = 1000, 4000
	at := newPlace(t)
	n := start(t, at.flags()...)
	p := n.sleeper("flooded", "--mib", "64")
	before := n.serving(p)
	n.asleep(p)
	shim := n.shimOf(p.ID)
	n.agent.Kill()
	stop := make(chan struct{})
	idle := n.resident(shim)
	var sent atomic.Int64
	var flooding errgroup.Group
	flooding.Go(func() error { return flood(p.IP, rate, stop, &sent) })
	most := idle
	n.eventually("enough packets were sent", func() error {
		most = max(most, n.resident(shim))
		if got := sent.Load(); got < enough {
			return fmt.Errorf("only %d packets were sent", got)
		}
		return nil
	})
	t.Logf("the shim has %d KiB, and had at most %d KiB while packets came", idle>>10, most>>10)
	if most > idle+16<<20 {
		t.Errorf("the shim grew from %d to %d bytes", idle, most)
	}
	n.startAgent(at.flags()...)
	n.alive(p, before)
	close(stop)
	must(t, flooding.Wait())
	t.Logf("%d packets were sent", sent.Load())
	n.sleep("", p) // once the last packet has come
	n.alive(p, before)
}

// flood sends packets of many kinds to an address, so many a second, until stop is closed, and counts those that were
// sent: datagrams of all sizes, segments without a connection, echo requests, and what is none of these.
func flood(ip string, rate int, stop <-chan struct{}, sent *atomic.Int64) error {
	to := unix.SockaddrInet4{Addr: [4]byte(net.ParseIP(ip).To4())}
	var sockets []int
	for _, protocol := range []int{unix.IPPROTO_UDP, unix.IPPROTO_TCP, unix.IPPROTO_ICMP, unix.IPPROTO_SCTP, 253} {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, protocol)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		sockets = append(sockets, fd)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return nil
		case <-tick.C:
		}
		for range rate / 100 {
			if unix.Sendto(sockets[rand.IntN(len(sockets))], noise(), 0, &to) == nil {
				sent.Add(1)
			}
		}
	}
}

// noise is the payload of a packet: random bytes, of any length, some of which are sensible headers.
func noise() []byte {
	b := make([]byte, 8+rand.IntN(1400))
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	if rand.IntN(2) == 0 && len(b) >= 20 {
		copy(b[2:], []byte{0x1f, 0x90})  // to port 8080
		b[12], b[13] = 5<<4, 2           // a SYN without options
		b[0], b[1] = 8, byte(len(b)&0xf) // or an echo request
	}
	return b
}

// resident returns the resident memory of a process, in bytes.
func (n *node) resident(pid int) int64 {
	n.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	must(n.T, err)
	var size, pages int64
	if _, err := fmt.Sscan(string(data), &size, &pages); err != nil {
		n.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
