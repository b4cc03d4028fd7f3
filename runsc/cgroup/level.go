package cgroup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// Unlimited stands for no limit, in bytes.
const Unlimited = math.MaxInt64

// unlimited1 is the lowest value that cgroup v1 shows for a limit that was never set. The kernel shows the
// greatest number of whole pages, and the page size differs.
const unlimited1 = math.MaxInt64 - 1<<20

// files are the names of the files of a memory cgroup, by version.
type files struct {
	limit string // the hard limit: beyond it the kernel kills
	usage string
	stat  string
	lids  []string  // other limits that the limit must not exceed, where they exist
	cache [2]string // lines of stat: pages of files, which the kernel reclaims when a limit is reached
}

var (
	v1 = files{
		limit: "memory.limit_in_bytes", usage: "memory.usage_in_bytes", stat: "memory.stat",
		lids:  []string{"memory.memsw.limit_in_bytes"},
		cache: [2]string{"total_inactive_file", "total_active_file"},
	}
	v2 = files{
		limit: "memory.max", usage: "memory.current", stat: "memory.stat",
		lids:  []string{"memory.high"}, // slows down what exceeds it
		cache: [2]string{"inactive_file", "active_file"},
	}
)

// Level is the memory limit and usage of one cgroup of a hierarchy, in bytes. The usage includes the cgroups
// below it.
type Level struct {
	Dir         string
	Limit       int64 // Unlimited if there is none
	Usage       int64
	Reclaimable int64 // part of Usage: pages of files on disk, which can make room for others
}

// held returns the part of the usage that the kernel does not reclaim.
func (l Level) held() int64 { return l.Usage - l.Reclaimable }

// Free returns how much more memory can be allocated before the kernel kills something; Unlimited if there is no
// limit.
func (l Level) Free() int64 {
	if l.Limit == Unlimited {
		return Unlimited
	}
	return max(0, l.Limit-l.held())
}

// Memory is the memory cgroup of a process. Its methods may be called concurrently.
type Memory struct {
	top   string // directory of the mount; levels end below it
	group string // path below top
	files *files
}

// Dir returns the directory of the cgroup.
func (m *Memory) Dir() string { return filepath.Join(m.top, m.group) }

// Levels returns the cgroup and those above it, from the inside out. It skips cgroups above it that have no
// memory controller. The root cgroup of the hierarchy has no limit and is left out.
func (m *Memory) Levels() (levels []Level, err error) {
	for group := m.group; group != "."; group = filepath.Dir(group) {
		l, err := m.files.level(filepath.Join(m.top, group))
		if errors.Is(err, os.ErrNotExist) && group != m.group {
			continue // the memory controller is not enabled here
		}
		if err != nil {
			return nil, err
		}
		levels = append(levels, l)
	}
	return levels, nil
}

// Limit returns the tightest limit up the hierarchy; Unlimited if there is none.
func (m *Memory) Limit() (int64, error) {
	levels, err := m.Levels()
	limit := int64(Unlimited)
	for _, l := range levels {
		limit = min(limit, l.Limit)
	}
	return limit, err
}

// Usage returns how much memory the cgroup uses, and how much of that the kernel reclaims before it kills.
func (m *Memory) Usage() (used, reclaimable int64, err error) {
	l, err := m.files.level(m.Dir())
	return l.Usage, l.Reclaimable, err
}

// Tightest returns the level with the least free memory. If no level has a limit, the result's Limit is
// Unlimited.
func (m *Memory) Tightest() (Level, error) {
	levels, err := m.Levels()
	tightest := Level{Dir: m.Dir(), Limit: Unlimited}
	for _, l := range levels {
		if l.Free() < tightest.Free() {
			tightest = l
		}
	}
	return tightest, err
}

func (f *files) level(dir string) (l Level, err error) {
	l.Dir = dir
	if l.Limit, err = readLimit(filepath.Join(dir, f.limit)); err != nil {
		return l, err
	}
	if l.Usage, err = readLimit(filepath.Join(dir, f.usage)); err != nil {
		return l, err
	}
	l.Reclaimable, err = f.reclaimable(dir)
	return l, err
}

// readLimit returns the one number of a file.
func readLimit(path string) (int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	word := strings.TrimSpace(string(data))
	if word == "max" {
		return Unlimited, nil
	}
	n, err := strconv.ParseInt(word, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	if n >= unlimited1 {
		return Unlimited, nil
	}
	return n, nil
}

// reclaimable returns the memory of files in the page cache.
func (f *files) reclaimable(dir string) (sum int64, err error) {
	data, err := os.ReadFile(filepath.Join(dir, f.stat))
	if err != nil {
		return 0, err
	}
	for s := bufio.NewScanner(bytes.NewReader(data)); s.Scan(); {
		name, value, _ := strings.Cut(s.Text(), " ")
		if name != f.cache[0] && name != f.cache[1] {
			continue
		}
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("%s of %s: %w", name, dir, err)
		}
		sum += n
	}
	return sum, nil
}

func has(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// mountsOf returns the mounts that a process sees and that match accepts.
func mountsOf(viewer string, match func(*mountinfo.Info) bool) ([]*mountinfo.Info, error) {
	f, err := os.Open(filepath.Join("/proc", viewer, "mountinfo"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return mountinfo.GetMountsFromReader(f, func(m *mountinfo.Info) (skip, stop bool) { return !match(m), false })
}
