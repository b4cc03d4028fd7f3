package dir

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// networks are the file systems, as statfs names them, on which a node may see late what another one has done. (The
// cluster file systems Ceph, GFS2, Lustre, OCFS2 and GPFS are not among them: there a read sees every write that ended
// before.)
var networks = map[int64]string{
	unix.NFS_SUPER_MAGIC: "NFS", unix.SMB_SUPER_MAGIC: "SMB", unix.CIFS_SUPER_MAGIC: "SMB", unix.SMB2_SUPER_MAGIC: "SMB",
	unix.V9FS_MAGIC: "9p", unix.FUSE_SUPER_MAGIC: "FUSE", unix.AFS_SUPER_MAGIC: "AFS", unix.AFS_FS_MAGIC: "AFS",
	unix.CODA_SUPER_MAGIC: "Coda", vboxMagic: "vboxsf",
}

const vboxMagic = 0x786f4256 // not in package unix

// CheckShared returns an error if nodes that share the directory at path might not see at once what others have written
// and deleted there. A store relies on that. The directory need not exist yet.
func CheckShared(path string) error {
	path, err := existing(path)
	if err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return fmt.Errorf("statfs %s: %w", path, classify(err))
	}
	name, network := networks[int64(uint32(st.Type))]
	if !network {
		return nil
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("how %s is mounted: %w", path, err)
	}
	return checkMount(path, name, mountOptions(string(mounts), path))
}

// existing returns path if it exists, or else the nearest directory above it that exists.
func existing(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	for {
		real, err := filepath.EvalSymlinks(path)
		if err == nil || !os.IsNotExist(err) || path == "/" {
			return real, err
		}
		path = filepath.Dir(path)
	}
}

// checkMount judges a network file system by its options. Only for NFS are there options known to make it safe.
func checkMount(path, name string, options []string) error {
	if name != "NFS" {
		return fmt.Errorf("%s is on a file system of the kind %s, on which nodes may not see at once what others have "+
			"written: "+
			"use a bucket, or NFS mounted with lookupcache=none,actimeo=0", path, name)
	}
	fresh := slices.Contains(options, "noac") || slices.Contains(options, "actimeo=0") || !slices.ContainsFunc(
		[]string{"acregmin=0", "acregmax=0", "acdirmin=0", "acdirmax=0"},
		func(o string) bool { return !slices.Contains(options, o) })
	if fresh && slices.Contains(options, "lookupcache=none") {
		return nil
	}
	return fmt.Errorf("%s is on NFS that caches: nodes may not see at once what others have written: "+
		"mount it with lookupcache=none,actimeo=0", path)
}

// mountOptions returns the options of the mount that path is on, as /proc/self/mountinfo lists it. If several file
// systems are mounted at one place, the last one counts.
func mountOptions(mountinfo, path string) (options []string) {
	longest := -1
	for line := range strings.Lines(mountinfo) {
		mount, super, ok := strings.Cut(line, " - ")
		fields, superFields := strings.Fields(mount), strings.Fields(super)
		if !ok || len(fields) < 6 || len(superFields) < 3 {
			continue
		}
		point := unescape.Replace(fields[4])
		if below(path, point) && len(point) >= longest {
			longest = len(point)
			options = append(strings.Split(fields[5], ","), strings.Split(superFields[2], ",")...)
		}
	}
	return options
}

var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)

func below(path, point string) bool {
	return point == "/" || path == point || strings.HasPrefix(path, point+"/")
}
