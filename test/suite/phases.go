package main

import (
	"slices"
	"strings"
	"time"
)

// phase is a part of the suite that one go test runs.
type phase struct {
	name string
	// dir is the directory of the module, relative to the root; empty is the root.
	dir string
	// pick chooses among the packages of the module.
	pick  func(pkg) bool
	flags []string
	env   []string
	// format is that of gotestsum.
	format string
	// timeout is the -timeout of go test, which is for each package.
	timeout time.Duration
	// asked says that the phase is run only if it is named: others run its tests, too.
	asked bool
}

// raced reports whether the phase runs with the race detector, which needs a C compiler.
func (p phase) raced() bool { return slices.Contains(p.flags, "-race") }

// Formats of gotestsum: a line for each test, or for each package and each failed test.
const (
	eachTest    = "testname"
	eachPackage = "pkgname-and-test-fails"
)

// integration is the longest package that needs a bed. Its tests run in two shards, each with a bed of its own.
const integration = "test/integration"

// kube is the longest package that needs an API server alone, for which it mostly waits.
const kube = "agent/kube"

// own are the packages that have phases of their own.
var own = []string{"test/e2e", integration, kube}

// unraced are packages without a bed that run without the race detector: the release builds all programs, and the
// process that test/recovery starts is killed before it could report a race.
var unraced = []string{"test/docs", "test/recovery", "test/tools/release"}

// long are packages without a bed that the phase unit leaves out: they build programs, need Node, or boot a kernel.
var long = []string{"runsc/fast", "storage/azblob", "test/tools/release", "test/vm"}

// rare are tests of the longest package for each of which a nearer one stays in make test. Those of the first three
// lines end a daemon, a shim or the node at one more step: TestAgentKilled, TestContainerdKilled, TestSandboxExits,
// TestSleepAgentKilled, TestSleepContainerd, TestSleepShimKilled and TestSleepReboot stay, and "make chaos" ends them
// at random. The others have one more case of a test that stays, in the order of the lines:
//   - TestShimWithoutAgent, TestLeaseRunsOut, TestAgentTerminated, TestCheckpointWhileLoading, TestSleepUnwoken,
//     TestSleepReboot;
//   - TestHostileCheckpointsAtOnce, TestNameTaken, TestCheckpointRefused, TestStop, TestBranches, TestMemoryLimit;
//   - TestCPULimitOfSave, TestPrecopy, TestVolumeChanged, TestVolumes, TestSpoolFull, TestVolumesDamaged;
//   - TestRootfsOnly, TestDamagedSnapshots, TestWorkloadSaves;
//   - TestRestoreMakesRoom, TestNoRoomToSave, TestWakeWaits, TestSleepStats, TestSleepMeetsConnection;
//   - TestStorageAway in test/e2e, TestSleepCheckpointed, TestRunscReplaced, TestEncrypted, TestLeftBehind;
//   - TestReadyTwoWakes, TestReadyDies, TestReadyKilled.
const rare = "^Test(AgentKilled(AsOthersName|Precopy|Queued|Replicating|Spooled)|KilledWhileLoading|" +
	"RootfsAgentKilled|PausedContainerdKilled|(Loading|Hung)ContainerdRestarted|HungWithoutMemory|" +
	"Volumes(Agent|Shim)Killed|Sleep(Agent|Containerd)Killed(Falling|Waking)|" +
	"Sleep(AgentKilledWoken|ContainerKilledFalling|KilledWaking|ShimStopped(Falling|Waking)|ShimsKilled|" +
	"RebootWhileWaking|RebootWithoutAgent)|" +
	"RemovedWithoutAgent|PausedWithoutAgent|Interrupted|AgentKilledWhileLoading|" +
	"SleepUnwoken(Reboot|Ends|WithoutAgent)|SleepReboot(Damaged|Volume)|" +
	"ManyCheckpoints|OneName|CheckpointOddNames|NotStopped|NotCreated|NeverStarted|LoadingContainerEnds|" +
	"UnreadableRecord|MemoryOutgrown|KeepCPULimits|PrecopyDiskFull|Volume(Claim|Older)|" +
	"ArenaOverflow|Volumes(Refused|Hinted|Inherit|SpoolFull|Rootfs|Workload)|" +
	"Rootfs(Facts|StartedAgain|Damaged)|DamagedBeforeReplication|" +
	"Workload(SavesBoth|SavesFiles|SavesWhileLoading|FilesRefused)|" +
	"CheckpointMakesRoom|StoreFull|WakeWaitsGone|StatsWhileRestoring|CheckpointMet|" +
	"ObjectStore|Sleep(StoreAway|CheckpointMustWake|OtherRunsc|Encrypted)|RunningSession|" +
	"Ready(AtOnce|MakingKilled|WakingKilled))$"

// rareCluster are tests of a cluster for each of which a nearer one stays in make test: those of the agent's death in
// test/integration and TestDaemonsRestarted, TestCPULimitOfRestore, TestVolumes and TestRootfsOnly, TestWorkloadSaves,
// TestSDK and TestGolden, TestDrain and TestDrainSaves, TestDatabasePostgreSQL, TestSandboxLost, TestSleepUnderKubelet,
// TestStop of test/integration, TestCreateInterrupted of the shim, those of agent/kube and agent/local about adoption,
// rotation, triggers, orphans, instants and terminations.
const rareCluster = "AgentKilledIn(Checkpoint|Restore)|CPULimit|RootfsVolumes(OnNode)?|NeverRestarted|" +
	"Adopt|RotateKeys|Latency|WorkloadSavesFiles|(SDK|Golden)BesideSleepers|SleepDrained|DeploymentDrained|" +
	"DatabaseSQLite|SameSecond|StoppedGoesOn|StopFails|Orphan|BeforeReplication|RestartIsNoTermination|" +
	"EndsWithoutAgent|SleepNodeLost|SleepTriggered"

// rareBuild are tests that build and run what changes seldom: the release, gVisor's patched packages beside its own,
// and images that are compressed or loaded without what the repaired build keeps.
const rareBuild = "^Test(Release|SameAsGVisors|CrossCompressed|EarlyLoad(Compressed|Unkept|Alone))$"

// phases are all phases, in the order in which they are reported.
var phases = []phase{
	{
		name: "race", pick: not(needsBed, named(unraced...)), format: eachPackage, timeout: 80 * time.Minute,
		flags: []string{"-race", "-p=2", "-skip=" + rareBuild}, env: []string{"CGO_ENABLED=1"},
	},
	{
		name: "plain", pick: named(unraced...), format: eachPackage, timeout: 20 * time.Minute,
		flags: []string{"-p=1", "-skip=" + rareBuild},
	},
	{
		name: "memory", pick: named("storage"), format: eachPackage, timeout: 20 * time.Minute,
		flags: []string{"-run=^(TestMemoryOfChunks|TestTooManyChunks)$"},
	},
	{
		name: "plots", dir: "bench/plots", pick: all, format: eachPackage, timeout: 20 * time.Minute,
	},
	{
		name: "chart", dir: "test/chart", pick: all, format: eachPackage, timeout: 20 * time.Minute,
	},
	{
		name: "dashboard", dir: "test/dashboard", pick: all, format: eachPackage, timeout: 20 * time.Minute,
	},
	{
		name: "workflows", dir: "test/workflows", pick: all, format: eachPackage, timeout: 20 * time.Minute,
	},
	{
		name: "unit", pick: not(needsBed, named(long...)), format: eachPackage, timeout: 10 * time.Minute,
		flags: []string{"-short"}, asked: true,
	},
	{
		name: "kube", pick: named(kube), format: eachPackage, timeout: 80 * time.Minute,
	},
	{
		name: "beds", pick: beds, format: eachPackage, timeout: 80 * time.Minute,
		flags: []string{"-p=1", "-skip=" + rareBuild},
	},
	{
		name: "integration-sleep", pick: named(integration), format: eachTest, timeout: 80 * time.Minute,
		flags: []string{"-run=^TestSleep", "-skip=" + rare},
	},
	{
		name: "integration-rest", pick: named(integration), format: eachTest, timeout: 80 * time.Minute,
		flags: []string{"-skip=^TestSleep|" + rare},
	},
	{
		name: "rare-node", pick: named(integration), format: eachTest, timeout: 60 * time.Minute,
		flags: []string{"-run=" + rare}, asked: true,
	},
	{
		name: "rare-cluster", pick: named("test/e2e"), format: eachTest, timeout: 60 * time.Minute,
		flags: []string{"-run=^Test(" + rareCluster + ")$"}, asked: true,
	},
	{
		name: "rare-build", pick: named("test/tools/release", "runsc/fast", "runsc/fast/integration"), format: eachPackage,
		timeout: 60 * time.Minute, flags: []string{"-p=1", "-run=" + rareBuild}, asked: true,
	},
	{
		name: "stock-build", pick: named(integration), format: eachTest, timeout: 20 * time.Minute,
		flags: []string{"-run=^Test(Branches|Fidelity|TwoContainers|OtherNode|AgentKilledWhileLoading|" +
			"CheckpointWhileLoading|DamagedSnapshots|Sleep|Ready(|Dies|Killed|Reboot|TwoWakes|OtherRunsc)|WorkingSet|" +
			"LeftBehind|RunningSession)$"},
		env: []string{"DIAPAUSE_RUNSC=runsc"}, asked: true,
	},
	{
		name: "e2e", pick: named("test/e2e"), format: eachTest, timeout: 80 * time.Minute,
		flags: []string{"-skip=^Test(Chaos|S3|Database(MariaDB|Redis)|" + rareCluster + ")$"},
	},
}

// lanes say what runs beside what: lanes run at the same time, the phases of a lane one after the other. Two lanes keep
// two processors nearly busy. The third is over before e2e, which runs three tests at a time by itself: with two other
// phases beside it, probes of its pods ran out of time, or one was always under way.
var lanes = [][]string{
	{"race", "e2e", "integration-sleep"},
	{"integration-rest", "beds"},
	{"kube", "plain", "memory", "plots", "chart", "dashboard", "workflows"},
}

func all(pkg) bool { return true }

func needsBed(p pkg) bool { return p.bed }

// beds picks what needs a bed and has no phase of its own.
func beds(p pkg) bool { return p.bed && !slices.Contains(own, p.name) }

// named picks packages by name.
func named(names ...string) func(pkg) bool {
	return func(p pkg) bool { return slices.Contains(names, p.name) }
}

// not picks what none of the others does.
func not(others ...func(pkg) bool) func(pkg) bool {
	return func(p pkg) bool {
		return !slices.ContainsFunc(others, func(f func(pkg) bool) bool { return f(p) })
	}
}

// chosen reports whether the phase is one of those names. A name without its part behind the dash stands for all of
// its parts. No names at all stand for every phase but those that are to be named.
func (p phase) chosen(names []string) bool {
	if len(names) == 0 {
		return !p.asked
	}
	return slices.ContainsFunc(names, func(n string) bool { return p.name == n || strings.HasPrefix(p.name, n+"-") })
}

// schedule returns the lanes with the chosen phases. A phase that is in no lane gets one of its own.
func schedule(phases []phase, lanes [][]string, names []string) (out [][]phase) {
	var placed []string
	for _, lane := range lanes {
		var list []phase
		for _, name := range lane {
			i := slices.IndexFunc(phases, func(p phase) bool { return p.name == name })
			if i >= 0 && phases[i].chosen(names) {
				list, placed = append(list, phases[i]), append(placed, name)
			}
		}
		if len(list) > 0 {
			out = append(out, list)
		}
	}
	for _, p := range phases {
		if p.chosen(names) && !slices.Contains(placed, p.name) {
			out = append(out, []phase{p})
		}
	}
	return out
}
