package fast

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

//go:embed _gvisor
var embedded embed.FS

// The directories of gVisor that are involved, from the root of its module.
const (
	stateDir    = "pkg/state"
	wireDir     = "pkg/state/wire"
	diffDir     = "pkg/difftest"
	pgallocDir  = "pkg/sentry/pgalloc"
	stateipcDir = "pkg/sentry/state/stateipc"
	kernelDir   = "pkg/sentry/kernel"
)

// replaced are the files of gVisor that ours take the place of. Two of ours have the name of one of these.
var replaced = []string{
	"addr_range.go", "addr_set.go", "decode.go", "decode_unsafe.go", "deferred_list.go", "encode.go", "encode_unsafe.go",
}

// edit replaces a text in a file that has it exactly once. The file's path is from the directory that it is applied to.
type edit struct{ file, old, new string }

// edits are for files that stay. The maps of gVisor's encoder and decoder go.
var edits = []edit{
	{"state.go", "\t\tzeroValues:     make(map[reflect.Type]*objectEncodeState),\n", ""},
	{"state.go", "\t\tpending:        make(map[objectID]*objectEncodeState),\n", ""},
	{"state.go", "\t\tencodedStructs: make(map[reflect.Value]*wire.Struct),\n", ""},
	{"state.go", "\t\tdeferred: make(map[objectID]wire.Object),\n", ""},
}

// saveEdits are for files of other packages, which stay. What has no memory is not read when memory is saved. The
// table of what was encoded is made if it is logged.
var saveEdits = []edit{
	{
		loaderFile, "\t\"gvisor.dev/gvisor/pkg/sentry/memmap\"\n",
		"\t\"gvisor.dev/gvisor/pkg/sentry/memmap\"\n\t\"gvisor.dev/gvisor/pkg/sentry/pgalloc/holes\"\n",
	},
	{
		loaderFile, "\tzeroPage := make([]byte, hostarch.PageSize)\n",
		"\tzeroPage := make([]byte, hostarch.PageSize)\n\tfileHoles := holes.Open(int(f.file.Fd()))\n" +
			"\tdefer fileHoles.Close()\n",
	},
	{
		loaderFile, "isZeroed := bytes.Equal(pg, zeroPage)",
		"isHole := fileHoles.Contains(off)\n\t\t\t\tisZeroed := isHole || bytes.Equal(pg, zeroPage)",
	},
	{
		loaderFile, "\t\t\t\t\t\tdecommitAddPage(off)\n",
		"\t\t\t\t\t\tif !isHole {\n\t\t\t\t\t\t\tdecommitAddPage(off)\n\t\t\t\t\t\t}\n",
	},
	{
		kernelFile, `log.Infof("Kernel save stats: %s", stats.String())`,
		`log.Debugf("Kernel save stats: %s", &stats)`,
	},
}

// loadEdits have a task that touches memory which is still being loaded wait for the 4 MiB around it, not for 32 MiB.
// Where the memory comes over a wire, that is most of what stands before a first answer.
var loadEdits = []edit{
	{"pkg/sentry/mm/address_space.go", "setMapUnit(32 << 20)", "setMapUnit(4 << 20)"},
}

// laneEdits have pages that a task waits for read by a connection of their own, as soon as it waits. GVisor's loader
// asks for them once some other read has ended, and by the same connection.
var laneEdits = []edit{
	{
		"runsc/boot/controller.go", "afc.OpenRead(checkpointfiles.PagesFileName)",
		"afc.OpenReadLanes(checkpointfiles.PagesFileName)",
	},
	{loaderFile, "\tapfl.lfStatus.Init()\n", "\tapfl.startLanes()\n\tapfl.lfStatus.Init()\n"},
	{
		loaderFile, "\t// qavail is unused capacity in ar.\n\tqavail int\n",
		"\t// qavail is unused capacity in ar, of the current lane if it has two.\n\tqavail int\n\tlanes  lanes\n",
	},
	{
		loaderFile, "\tapfl.mu.Unlock()\n\tif pending {\n\t\tif logAwaitedLoads {\n",
		"\tapfl.mu.Unlock()\n\tif pending {\n\t\tapfl.lookForAwaited()\n\t\tif logAwaitedLoads {\n",
	},
	{
		loaderFile, "\t\tif !apfl.canEnqueue() {\n\t\t\tpanic(\"main loop invariant failed\")\n\t\t}\n" + prioritized,
		"\t\tif apfl.full() {\n\t\t\tpanic(\"main loop invariant failed\")\n\t\t}\n" +
			"\t\tapfl.takeLane(true)\n\t\tapfl.remind()\n" + prioritized,
	},
	{
		loaderFile, unawaited + "\t\tif apfl.canEnqueue() {\n",
		"\t\tapfl.takeLane(false)\n" + unawaited + "\t\tif apfl.loadWorkingSet() && apfl.canEnqueue() {\n",
	},
	{loaderFile, untilPages, "\tapfl.readWorkingSet()\n" + untilPages},
	{loaderFile, "\t\t\tamfl.lfDone = true\n", "\t\t\tamfl.lfDone = true\n\t\t\tamfl.pf.lfStatus.Notify(aplLFPending)\n"},
	{loaderFile, "if apfl.qavail == maxParallel {", "if apfl.unused() == maxParallel {"},
	{
		loaderFile, "\t\t\tapfl.qavail++\n",
		"\t\t\tapfl.completed(op)\n\t\t\tif op.isReminder() {\n\t\t\t\tcontinue\n\t\t\t}\n",
	},
	{loaderFile, prioritize, strings.TrimSuffix(prioritize, "}\n") + "} else {\n\t\t\t\tapfl.noteLate(ul.off)\n\t\t\t}\n"},
}

const (
	kernelFile  = "pkg/sentry/kernel/kernel.go"
	loaderFile  = "pkg/sentry/pgalloc/save_restore.go"
	prioritize  = "\t\t\tif !ul.started {\n\t\t\t\tapfl.priority.PushBack(aplFileRange{amfl, ulFR})\n\t\t\t}\n"
	prioritized = "\t\t// Prioritize reading pages with waiters.\n"
	unawaited   = "\t\t// Fill remaining queue with reads for pages with no waiters.\n"
	untilPages  = "\t// Don't start timing until we have pages to load.\n"
)

// restoreEdits have an endpoint of TCP take segments only once it is in the state that it was saved in. GVisor's panics
// if one comes before ("unexpected tcp state in processor: BOUND"), for instance from an endpoint of the same sandbox
// that was restored earlier.
var restoreEdits = []edit{
	{
		endpointFile, "\te.segmentQueue.thaw()\n\n\te.mu.Lock()\n\tid := e.ID\n",
		"\tif s := EndpointState(e.origEndpointState); !s.connected() && !s.connecting() && s != StateListen {\n" +
			"\t\te.segmentQueue.thaw()\n\t}\n\n\te.mu.Lock()\n\tid := e.ID\n",
	},
	{
		endpointFile, "\t\t\tbind()\n\t\t\terr := e.Connect(",
		"\t\t\tbind()\n\t\t\te.segmentQueue.thaw()\n\t\t\terr := e.Connect(",
	},
	{
		endpointFile, "func (e *Endpoint) requeueOnRestore() {\n",
		"func (e *Endpoint) requeueOnRestore() {\n\te.segmentQueue.thaw()\n",
	},
}

const endpointFile = "pkg/tcpip/transport/tcp/endpoint_state.go"

// execEdits have `runsc exec --detach` look once more whether a command has begun when its process has ended, and leave
// to others how that has ended. GVisor's looks first for the one and then for the other, so it takes a command that
// begins and ends in between for one that has never begun, and has then taken its exit status.
var execEdits = []edit{
	{
		specutilsFile, "\t\tvar ws unix.WaitStatus\n\t\tvar ru unix.Rusage\n" +
			"\t\tchild, err := unix.Wait4(pid, &ws, unix.WNOHANG, &ru)\n",
		"\t\tended, err := hasEnded(pid)\n",
	},
	{
		specutilsFile, "\t\t} else if child == pid {\n\t\t\treturn backoff.Permanent(",
		"\t\t} else if ended {\n\t\t\tif ok, err := ready(); ok && err == nil {\n\t\t\t\treturn nil\n\t\t\t}\n" +
			"\t\t\treturn backoff.Permanent(",
	},
}

const (
	specutilsDir  = "runsc/specutils"
	specutilsFile = specutilsDir + "/specutils.go"
)

// filterEdits have the programs that [Precompile] writes used. GVisor's own build by Bazel does the same; in its Go
// module they are left out. A sandbox may end itself in what is precompiled, too: gVisor has there the process that
// wrote the programs. Those for devices of NVIDIA are not made: they are hundreds.
var filterEdits = []edit{
	{systrapFilters, "import (\n\t\"os\"\n\n", "import (\n"},
	{systrapFilters, "seccomp.EqualTo(os.Getpid())", `seccomp.EqualTo(vars.GetUint64("self_pid"))`},
	{
		"runsc/boot/filter/config/config_precompiled.go", "range nvconf.PopularCapabilitySets()",
		"range nvconf.PopularCapabilitySets()[:0]",
	},
	{"runsc/boot/filter/filter_precompiled.go", registered, "\tregisterPrecompiled(programs)\n" + registered},
	{"runsc/boot/filter/filter_precompiled.go", disabled + "true", disabled + "false"},
	{"runsc/fsgofer/filter/filter_precompiled.go", registered, "\tregisterPrecompiled(programs)\n" + registered},
	{"runsc/fsgofer/filter/filter_precompiled.go", disabled + "true", disabled + "false"},
}

const (
	systrapFilters = "pkg/sentry/platform/systrap/filters.go"

	registered = "\tprecompiledPrograms = programs\n"
	disabled   = "const PrecompilationDisabledAtBuildTime = "
)

// earlyEdits have the kernel's state loaded while containers are still to come. GVisor's restore begins with that once
// the last one has come. What the state needs of the containers, it waits for.
var earlyEdits = []edit{
	{
		restorerFile, "\tcheckpointedSpecs map[string]*specs.Spec\n", "\tcheckpointedSpecs map[string]*specs.Spec\n\n" +
			"\t// early is the load of the kernel's state, if it has begun.\n\tearly *earlyLoad\n",
	},
	{
		restorerFile, "\t\tif err := r.restore(l); err != nil {\n\t\t\treturn err\n\t\t}\n\t}\n\treturn nil\n",
		"\t\treturn r.restoreAll(l)\n\t}\n\tif r.early == nil {\n\t\treturn r.loadEarly(l)\n\t}\n\treturn nil\n",
	},
	{
		restorerFile, "\tp, err := createPlatform(l.root.conf, l.root.applicationCores, r.deviceFile, l.sandboxID, " +
			"r.timer, &l.pinRing)\n\tif err != nil {\n\t\treturn fmt.Errorf(\"creating platform: %v\", err)\n\t}\n",
		"\tk, err := r.newKernel(l)\n\tif err != nil {\n\t\treturn err\n\t}\n",
	},
	{
		restorerFile, "\tl.k = &kernel.Kernel{\n\t\tPlatform: p,\n\t}\n\tl.k.SetMemoryFile(r.mainMF)\n", "\tl.k = k\n",
	},
	{
		restorerFile, "\tif err := l.installSeccompFilters(); err != nil {\n",
		"\tif err := r.installFilters(l); err != nil {\n",
	},
	{
		restorerFile, "\tif err := l.k.LoadFrom(ctx, r.stateFile, r.asyncMFLoader, nil, l, clocks, " +
			"&vfs.CompleteRestoreOptions{}, r.timer.Fork(\"kernel load\")); err != nil {\n",
		"\tif err := r.load(ctx, l, clocks); err != nil {\n",
	},
	{
		"pkg/sentry/pgalloc/pgalloc.go", "\tf := &MemoryFile{\n\t\topts: opts,\n\t\tfile: file,\n\t}\n",
		"\tf := promised.make(opts.ResourceID)\n\tf.opts, f.file = opts, file\n",
	},
	{
		"pkg/sentry/fsimpl/tmpfs/save_restore.go", mapOfFiles +
			"\tif mfmap == nil {\n\t\tpanic(\"CtxMemoryFileMap was not provided\")\n\t}\n" + fileInMap,
		fileOfContext,
	},
	{"pkg/sentry/mm/save_restore.go", mapOfFiles + fileInMap, fileOfContext},
	{
		kernelFile, "state.Load(ctx, r, &k.featureSet)" + featuresLoaded,
		"state.Load(context.Background(), r, &k.featureSet)" + featuresLoaded,
	},
	{
		kernelFile, kernelLoadTook + "time.Since(kernelStart))\n" + kernelLoaded,
		kernelLoadTook + "time.Since(kernelStart)-awaited(ctx))\n" + kernelLoaded,
	},
}

const (
	restorerFile = "runsc/boot/restore.go"

	mapOfFiles    = "\tmfmap := pgalloc.MemoryFileMapFromContext(ctx)\n"
	fileInMap     = "\tmf, ok := mfmap[resourceID]\n"
	fileOfContext = "\tmf, ok := pgalloc.MemoryFileFor(ctx, resourceID)\n"

	featuresLoaded = "; err != nil {\n\t\treturn err\n\t}\n" +
		"\tlog.Infof(\"CPUID load took [%s].\", time.Since(cpuidStart))\n\ttimeline.Reached(\"CPUID loaded\")\n"
	kernelLoadTook = "\tlog.Infof(\"Kernel load took [%s].\", "
	kernelLoaded   = "\ttimeline.Reached(\"Kernel loaded\")\n"
)

// treeEdits are for all of gVisor but its package state.
var treeEdits = slices.Concat(saveEdits, loadEdits, laneEdits, earlyEdits, restoreEdits, filterEdits, execEdits)

// Precompile is the path of the program, below the root of a [Tree], that has to be run with that root as its argument
// before the tree can be built. It writes the system call filters.
const Precompile = "runsc/precompile"

// wireBounds and stockBounds are edits for the comparison: gVisor's decoder makes room for whatever number a stream
// names. On altered streams the process of the test would end.
var (
	wireBounds = []edit{
		{"wire.go", "\tp := make([]byte, l)\n", "\tp := make([]byte, Bounded(uint64(l)))\n"},
		{"wire.go", "make([]byte, -d)", "make([]byte, Bounded(uint64(-d)))"},
		{"wire.go", "ref.Dots = make([]Dot, l)", "ref.Dots = make([]Dot, Bounded(uint64(l)))"},
		{"wire.go", "contents := make([]Object, l)", "contents := make([]Object, Bounded(uint64(l)))"},
		{"wire.go", "keys := make([]Object, l)", "keys := make([]Object, Bounded(uint64(l)))"},
		{"wire.go", "fields := make([]string, l)", "fields := make([]string, Bounded(uint64(l)))"},
		{"wire.go", "m := make(multipleObjects, l)", "m := make(multipleObjects, Bounded(uint64(l)))"},
	}
	stockBounds = []edit{
		{"decode.go", "int(x.Capacity), obj", "int(wire.Bounded(uint64(x.Capacity))), obj"},
		{"decode.go", "ArrayOf(int(x.Count),", "ArrayOf(int(wire.Bounded(uint64(x.Count))),"},
		{"decode.go", "int(id)-len(ds.objectsByID))", "int(wire.Bounded(uint64(id)))-len(ds.objectsByID))"},
	}
)

// Tree makes dir, which must not exist, a copy of the gVisor module at source with our files in it. Before it can be
// built, run the program [Precompile]. If a file that we touch is not as patches/UPSTREAM says, before or after that,
// Tree fails and names it.
func Tree(source, dir string) error {
	expected, err := parseUpstream(upstreamList)
	if err != nil {
		return err
	}
	if err := expected.checkBefore(source); err != nil {
		return err
	}
	if err := copyModule(source, dir); err != nil {
		return err
	}
	if err := overlay(filepath.Join(dir, stateDir)); err != nil {
		return err
	}
	if err := applyAll(treeEdits, dir); err != nil {
		return err
	}
	err = extractAll(dir, "pkg/compressio", pgallocDir, stateipcDir, kernelDir, "runsc/boot", Precompile, specutilsDir)
	if err != nil {
		return err
	}
	return expected.checkAfter(dir)
}

// Compare makes dir, which must not exist, a copy of the gVisor module at source with the package pkg/difftest. Its
// tests compare gVisor's package state with ours. Each is there under an import path of its own. Both save
// maps in one order.
func Compare(source, dir string) error {
	if err := copyModule(source, dir); err != nil {
		return err
	}
	if err := extract("difftest", filepath.Join(dir, diffDir), nil); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(dir, diffDir, "graph")); err != nil {
		return fmt.Errorf("compare encoders: %w", err)
	}
	if err := bound(dir, filepath.Join(dir, wireDir)); err != nil {
		return err
	}
	for _, name := range []string{"stock", "fast"} {
		if err := variant(source, dir, name); err != nil {
			return err
		}
	}
	if err := applyAll(slices.Concat(saveEdits, laneEdits, earlyEdits, execEdits), dir); err != nil {
		return err
	}
	return extractAll(dir, pgallocDir, stateipcDir, kernelDir, specutilsDir)
}

// bound has what reads a stream fail if that names a number that no graph of the tests has.
func bound(dir, wire string) error {
	if err := applyAll(wireBounds, wire); err != nil {
		return err
	}
	return move(filepath.Join(dir, diffDir, "bounded.txt"), filepath.Join(wire, "bounded.go"))
}

// move moves a file of the comparison to where it is compiled.
func move(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return fmt.Errorf("compare encoders: %w", err)
	}
	return nil
}

// variant makes a copy of package state, gVisor's or ours, and of the graphs that it saves.
func variant(source, dir, name string) error {
	root := filepath.Join(dir, diffDir, name)
	state := filepath.Join(root, "state")
	if err := copyFiles(filepath.Join(source, stateDir), state); err != nil {
		return err
	}
	edits := append(stockBounds, edit{"encode.go", "range obj.MapKeys()", "range sortedKeys(obj)"})
	if name == "fast" {
		if err := overlay(state); err != nil {
			return err
		}
		edits = []edit{{"encode_unsafe.go", "entries := m.MapRange()", "entries := sortedRange(m)"}}
	}
	if err := applyAll(edits, state); err != nil {
		return err
	}
	if err := copyFile(filepath.Join(dir, diffDir, "sorted.txt"), filepath.Join(state, "sorted.go")); err != nil {
		return err
	}
	importPath := strings.NewReplacer(`"gvisor.dev/gvisor/pkg/state"`, `"gvisor.dev/gvisor/pkg/difftest/`+name+`/state"`)
	return extract("difftest/graph", filepath.Join(root, "graph"), importPath)
}

// overlay puts our files into a copy of package state.
func overlay(dir string) error {
	for _, name := range replaced {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			return fmt.Errorf("replace gVisor's encoder: %w", err)
		}
	}
	if err := applyAll(edits, dir); err != nil {
		return err
	}
	return extract(stateDir, dir, nil)
}

func applyAll(edits []edit, dir string) error {
	for _, e := range edits {
		if err := e.apply(dir); err != nil {
			return err
		}
	}
	return nil
}

// apply fails if another version of gVisor has another text.
func (e edit) apply(dir string) error {
	path := filepath.Join(dir, e.file)
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("replace gVisor's encoder: %w", err)
	}
	if n := bytes.Count(data, []byte(e.old)); n != 1 {
		return fmt.Errorf("replace gVisor's encoder: %s has %q %d times, want once: has gVisor changed?", e.file, e.old, n)
	}
	data = bytes.Replace(data, []byte(e.old), []byte(e.new), 1)
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return fmt.Errorf("replace gVisor's encoder: %w", err)
	}
	return nil
}

// extractAll writes embedded directories to where they belong in a copy of gVisor.
func extractAll(dir string, added ...string) error {
	for _, a := range added {
		if err := extract(a, filepath.Join(dir, a), nil); err != nil {
			return err
		}
	}
	return nil
}

// extract writes the embedded directory from to dir. Texts are replaced in its files.
func extract(from, dir string, texts *strings.Replacer) error {
	from = "_gvisor/" + from
	return fs.WalkDir(embedded, from, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := embedded.ReadFile(path)
		if err != nil {
			return fmt.Errorf("write our files for gVisor: %w", err)
		}
		if texts != nil {
			data = []byte(texts.Replace(string(data)))
		}
		to := filepath.Join(dir, strings.TrimPrefix(path, from))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return fmt.Errorf("write our files for gVisor: %w", err)
		}
		if err := os.WriteFile(to, data, 0o644); err != nil {
			return fmt.Errorf("write our files for gVisor: %w", err)
		}
		return nil
	})
}

// copyModule copies a module, whose files may be read-only, to dir.
func copyModule(source, dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("copy gVisor: %w", err)
	}
	return filepath.WalkDir(source, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("copy gVisor: %w", err)
		}
		rel, err := filepath.Rel(source, path)
		if err != nil || d.IsDir() {
			return err
		}
		return copyFile(path, filepath.Join(dir, rel))
	})
}

// copyFiles copies the files of one directory, and no directories below it.
func copyFiles(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return fmt.Errorf("copy gVisor: %w", err)
	}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		if err := copyFile(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(to), 0o755)
	}
	if err == nil {
		err = os.WriteFile(to, data, 0o644)
	}
	if err != nil {
		return fmt.Errorf("copy gVisor: %w", err)
	}
	return nil
}
