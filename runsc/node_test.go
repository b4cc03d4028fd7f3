package runsc

import (
	"maps"
	"os"
	"testing"
)

func TestInside(t *testing.T) {
	hint := func(name, kind, share, source string) map[string]string {
		p := hintPrefix + name
		return map[string]string{p + ".type": kind, p + ".share": share, p + ".source": source, p + ".options": "rw"}
	}
	all := map[string]string{"other": "x", hintPrefix + "half.type": "tmpfs"}
	for _, m := range []map[string]string{
		hint("a", "tmpfs", "pod", "/a"), hint("b", "tmpfs", "container", "/b"),
		hint("c", "bind", "shared", "/c"), hint("d", "tmpfs", "shared", "/d"), hint("e", "bind", "pod", "/e"),
		hint("f", "tmpfs", "pod", ""),
	} {
		maps.Copy(all, m)
	}
	if got, want := inside(all), map[string]bool{"/a": true, "/b": true}; !maps.Equal(got, want) {
		t.Errorf("%v are inside, want %v", got, want)
	}
}

func TestShim(t *testing.T) {
	if n, err := shim(os.Getpid()); n != os.Getppid() || err != nil {
		t.Errorf("the parent is %d, %v, want %d", n, err, os.Getppid())
	}
	if n, err := shim(1 << 30); err == nil {
		t.Errorf("the parent of nobody is %d", n)
	}
}
