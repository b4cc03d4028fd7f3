package dir

import (
	"slices"
	"strings"
	"testing"
)

const mounts = `22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:40 / /mnt/two\040words rw,noatime shared:2 - nfs4 host:/a rw,vers=4.2,rsize=1048576,hard,lookupcache=none,` +
	`acregmin=0,acregmax=0,acdirmin=0,acdirmax=0,addr=10.0.0.1
31 22 0:41 / /mnt/over rw shared:3 - ext4 /dev/vdb rw
32 31 0:42 / /mnt/over rw shared:4 - nfs host:/b rw,vers=3,noac
broken line
`

func TestMountOptions(t *testing.T) {
	for path, want := range map[string]string{
		"/": "relatime", "/mnt": "relatime", "/mnt/overt": "relatime", "/mnt/over/store": "vers=3",
		"/mnt/two words": "lookupcache=none",
	} {
		if got := mountOptions(mounts, path); !slices.Contains(got, want) {
			t.Errorf("%s: %q, want %s among them", path, got, want)
		}
	}
}

func TestCheckMount(t *testing.T) {
	for _, c := range []struct {
		name, options string
		ok            bool
	}{
		{"NFS", "rw,noac,lookupcache=none", true},
		{"NFS", "rw,actimeo=0,lookupcache=none", true},
		{"NFS", strings.Join(mountOptions(mounts, "/mnt/two words"), ","), true},
		{"NFS", "rw,noac", false},
		{"NFS", "rw,lookupcache=none", false},
		{"NFS", "rw,lookupcache=none,acregmin=0,acregmax=0,acdirmin=0,acdirmax=60", false},
		{"NFS", "rw,lookupcache=pos,actimeo=0", false},
		{"FUSE", "rw,noac,lookupcache=none", false},
	} {
		err := checkMount("/mnt/store", c.name, strings.Split(c.options, ","))
		if (err == nil) != c.ok || err != nil && !strings.Contains(err.Error(), "lookupcache=none,actimeo=0") {
			t.Errorf("%s with %s: %v", c.name, c.options, err)
		}
	}
}
