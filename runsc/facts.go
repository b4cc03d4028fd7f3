package runsc

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
	"gvisor.dev/gvisor/pkg/cpuid"

	"diapause.dev/api/snapshot"
)

// Config is the part of the shim's configuration file (containerd's ConfigPath) that matters here.
// Its format is gVisor's (pkg/shim/v1/runsc/options.go).
type Config struct {
	Binary string            `toml:"binary_name"`
	Flags  map[string]string `toml:"runsc_config"`
}

// ReadConfig reads a configuration file. A file that does not exist is an empty one.
func ReadConfig(path string) (Config, error) {
	c := Config{Binary: "runsc"}
	if _, err := toml.DecodeFile(path, &c); err != nil && !errors.Is(err, os.ErrNotExist) {
		return Config{}, fmt.Errorf("read runsc configuration %s: %w", path, err)
	}
	return c, nil
}

// flag returns the value of a runsc flag, or its default.
func (c Config) flag(name, otherwise string) string {
	if v := c.Flags[name]; v != "" {
		return v
	}
	return otherwise
}

// Facts returns what this node offers with the runsc at path: the configured one, or the one that a running
// sandbox uses. It runs "runsc --version" and reads the whole binary: call it once for each.
func (c Config) Facts(ctx context.Context, path string) (snapshot.Facts, error) {
	version, err := Version(ctx, path)
	if err != nil {
		return snapshot.Facts{}, err
	}
	digest, err := digest(path)
	if err != nil {
		return snapshot.Facts{}, err
	}
	return snapshot.Facts{
		Architecture: runtime.GOARCH,
		RunscVersion: version,
		RunscDigest:  digest,
		CPUFeatures:  cpuFeatures(),
		Platform:     c.flag("platform", "systrap"),
		Network:      c.flag("network", "sandbox"),
		PageSize:     int64(os.Getpagesize()),
		Repaired:     repaired(path),
	}, nil
}

// repaired reports whether the runsc at path was built from a changed copy of gVisor's module. One that does not say
// from what it was built, as the releases of gVisor, was not.
func repaired(path string) bool {
	info, err := buildinfo.ReadFile(path)
	return err == nil && info.Main.Replace != nil
}

// Path returns the path of the configured runsc binary, with symbolic links resolved.
func (c Config) Path() (string, error) {
	p, err := exec.LookPath(c.Binary)
	if err != nil {
		return "", fmt.Errorf("find runsc: %w", err)
	}
	if p, err = filepath.EvalSymlinks(p); err != nil {
		return "", fmt.Errorf("find runsc: %w", err)
	}
	return p, nil
}

// SidecarPath returns where runsc looks for its checkpoint gofer: gvisor-bin/ next to the binary.
func (c Config) SidecarPath() (string, error) {
	p, err := c.Path()
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(p), "gvisor-bin", "checkpointgofer"), nil
}

// Version returns the version of gVisor that the runsc at path says it has.
func Version(ctx context.Context, path string) (string, error) {
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", path, err)
	}
	for line := range strings.Lines(string(out)) {
		if v, ok := strings.CutPrefix(line, "runsc version "); ok {
			return strings.TrimSpace(v), nil
		}
	}
	return "", fmt.Errorf("ask %s for its version: no version in %.80q", path, out)
}

func digest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("digest of runsc: %w", err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("digest of runsc: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func cpuFeatures() []string {
	cpuid.Initialize()
	f := strings.Fields(cpuid.HostFeatureSet().FlagString())
	slices.Sort(f)
	return slices.Compact(f)
}

// IncompatibleError says why a snapshot cannot be restored on a node. It names what both sides have.
type IncompatibleError struct{ What, Snapshot, Node string }

func (e *IncompatibleError) Error() string {
	return fmt.Sprintf("%s differs: the snapshot has %s, this node %s", e.What, e.Snapshot, e.Node)
}

// unstamped is the version that a runsc reports if it was built without one. It identifies nothing.
const unstamped = "VERSION_MISSING"

// Compatible returns nil if a snapshot taken with facts s can be restored on a node with facts n. Otherwise it
// returns one *IncompatibleError for each reason, joined.
func Compatible(s, n snapshot.Facts) error {
	var errs []error
	equal := func(what, sv, nv string) {
		if sv != nv {
			errs = append(errs, &IncompatibleError{what, sv, nv})
		}
	}
	equal("architecture", s.Architecture, n.Architecture)
	equal("runsc version", s.RunscVersion, n.RunscVersion)
	if s.RunscVersion == unstamped {
		equal("digest of an unstamped runsc", s.RunscDigest, n.RunscDigest)
	}
	equal("page size", fmt.Sprint(s.PageSize), fmt.Sprint(n.PageSize))
	if (s.Network == "host") != (n.Network == "host") {
		equal("network mode", s.Network, n.Network)
	}
	if missing := without(s.CPUFeatures, n.CPUFeatures); len(missing) > 0 {
		errs = append(errs, &IncompatibleError{
			"set of CPU features",
			strings.Join(missing, " "), "none of these",
		})
	}
	return errors.Join(errs...)
}

// CompatibleRootfs is Compatible for snapshots of root file systems alone. They need exactly the same runsc
// binary, and no particular CPU.
func CompatibleRootfs(s, n snapshot.Facts) error {
	var errs []error
	if s.RunscDigest != n.RunscDigest {
		errs = append(errs, &IncompatibleError{
			"runsc binary",
			s.RunscVersion + ", sha256 " + s.RunscDigest, n.RunscVersion + ", sha256 " + n.RunscDigest,
		})
	}
	if s.PageSize != n.PageSize {
		errs = append(errs, &IncompatibleError{"page size", fmt.Sprint(s.PageSize), fmt.Sprint(n.PageSize)})
	}
	return errors.Join(errs...)
}

// without returns what is in a and not in b.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(s string) bool { return slices.Contains(b, s) })
}
