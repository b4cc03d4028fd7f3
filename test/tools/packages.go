package tools

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// CNIPlugins is where Debian puts the CNI plugins.
const CNIPlugins = "/usr/lib/cni"

// Busybox is the static busybox that the test images hold.
const Busybox = "/bin/busybox"

// need is a Debian package and what shows that it is there.
type need struct {
	name  string
	there func() bool
}

// needs are the packages without which no test bed can run.
var needs = []need{
	{
		"containernetworking-plugins",
		func() bool { return isFile(CNIPlugins+"/bridge") && isFile(CNIPlugins+"/host-local") },
	},
	{"busybox-static", func() bool { return isStatic(Busybox) }},
	{"runc", func() bool { _, err := exec.LookPath("runc"); return err == nil }},
}

// extraNeeds are the packages that an extra needs besides.
var extraNeeds = map[Extra][]need{
	Kubernetes: {{"iptables", inPath("iptables")}, {"openssl", inPath("openssl")}},
	VM: {
		{"qemu-system-x86", inPath("qemu-system-x86_64")},
		{"cpio", inPath("cpio")},
		{"e2fsprogs", inPath("mke2fs")},
	},
}

// Packages makes sure that the Debian packages that the test bed and the extras
// need at run time are there. As root on Debian it installs what is missing;
// elsewhere it returns an error that names it.
func Packages(ctx context.Context, extras ...Extra) error {
	all := slices.Clone(needs)
	for _, e := range extras {
		all = append(all, extraNeeds[e]...)
	}
	return install(ctx, all)
}

// PythonProgram is Debian's Python.
const PythonProgram = "/usr/bin/python3"

// Python makes sure, in the way of Packages, that Debian's Python is there.
func Python(ctx context.Context) error {
	return install(ctx, []need{{"python3", func() bool { _, err := os.Stat(PythonProgram); return err == nil }}})
}

// Compiler makes sure, in the way of Packages, that there is a C compiler, which the race detector needs.
func Compiler(ctx context.Context) error {
	return install(ctx, []need{
		{"gcc", func() bool { _, err := exec.LookPath("gcc"); return err == nil }},
		{"libc6-dev", func() bool { return isFile("/usr/include/stdlib.h") }},
	})
}

func install(ctx context.Context, needs []need) error {
	names := missing(needs)
	if len(names) == 0 {
		return nil
	}
	list := strings.Join(names, " ")
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return fmt.Errorf("tools: missing on this machine: %s (as Debian calls them). On Debian, root can install them: "+
			"apt-get install --no-install-recommends %s", list, list)
	}
	fmt.Fprintf(os.Stderr, "tools: installing %s\n", list)
	if err := aptGet(ctx, append([]string{"install", "-y", "--no-install-recommends"}, names...)...); err != nil {
		if err := aptGet(ctx, "update"); err != nil {
			return err
		}
		if err := aptGet(ctx, append([]string{"install", "-y", "--no-install-recommends"}, names...)...); err != nil {
			return err
		}
	}
	if names := missing(needs); len(names) > 0 {
		return fmt.Errorf("tools: still missing after apt-get install: %s", strings.Join(names, " "))
	}
	return nil
}

// inPath returns what tells whether there is a program of that name.
func inPath(program string) func() bool {
	return func() bool {
		_, err := exec.LookPath(program)
		return err == nil
	}
}

func missing(needs []need) []string {
	var names []string
	for _, n := range needs {
		if !n.there() {
			names = append(names, n.name)
		}
	}
	return names
}

func aptGet(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "apt-get", append([]string{"-q", "-o", "DPkg::Lock::Timeout=300"}, args...)...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("tools: apt-get %s: %w\n%s", args[0], err, out)
	}
	return nil
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// isStatic reports whether path is a program that needs no dynamic linker.
func isStatic(path string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return false
		}
	}
	return true
}
