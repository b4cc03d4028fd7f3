package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// insideArg is the argument of this program in the sandbox, and childVar a variable that its child has.
const (
	insideArg = "inside"
	childVar  = "SOFTDIRTY_CHILD"
)

// What the program in the sandbox says.
const (
	ready   = "ready"
	written = "written"
)

// ways are how pages are written. A page has the number of its way behind magic.
var ways = []string{
	"by a mapping that stays", "by a mapping of a file that is then unmapped", "by write(2) to a file",
	"by a process that then ends, to a mapping of a file",
}

// The indices of ways.
const (
	byMapping = iota
	byUnmapped
	byWrite
	byChild
)

const (
	pageSize = 4096
	perWay   = 256               // pages
	magic    = "softdirty-page-" // with which a written page begins
	memory   = "/memory"         // a tmpfs
)

// write runs in the sandbox.
func write() error {
	if os.Getenv(childVar) != "" {
		return writeMapped(os.NewFile(3, "file"), byChild)
	}
	stays, err := mapped(-1, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return err
	}
	var files [byChild + 1]*os.File
	for way := byUnmapped; way <= byChild; way++ {
		if files[way], err = makeFile(way); err != nil {
			return err
		}
	}
	fmt.Println(ready)
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil {
		return err
	}
	mark(stays, byMapping)
	if err := writeMapped(files[byUnmapped], byUnmapped); err != nil {
		return err
	}
	whole := make([]byte, perWay*pageSize)
	mark(whole, byWrite)
	if _, err := files[byWrite].WriteAt(whole, 0); err != nil {
		return err
	}
	clear(whole) // only the file's pages are marked
	child := exec.Command("/proc/self/exe", insideArg)
	child.Env = append(os.Environ(), childVar+"=1")
	child.ExtraFiles = []*os.File{files[byChild]}
	if err := child.Run(); err != nil {
		return err
	}
	fmt.Println(written)
	if _, err := in.ReadByte(); err != io.EOF {
		return fmt.Errorf("standard input: %w", err)
	}
	return unix.Munmap(stays)
}

// makeFile makes a file with memory, of which no page is marked.
func makeFile(way int) (*os.File, error) {
	f, err := os.Create(fmt.Sprint(memory, "/", way))
	if err != nil {
		return nil, err
	}
	_, err = f.WriteAt(make([]byte, perWay*pageSize), 0)
	return f, err
}

// mapped maps memory, and writes to each page of it.
func mapped(fd, flags int) ([]byte, error) {
	b, err := unix.Mmap(fd, 0, perWay*pageSize, unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		return nil, err
	}
	for i := range perWay {
		b[(i+1)*pageSize-1] = 1
	}
	return b, nil
}

// writeMapped marks the pages of a file by a mapping, which it then takes away.
func writeMapped(f *os.File, way int) error {
	b, err := mapped(int(f.Fd()), unix.MAP_SHARED)
	if err != nil {
		return err
	}
	mark(b, way)
	return unix.Munmap(b)
}

// mark marks all pages.
func mark(b []byte, way int) {
	for i := range perWay {
		page := b[i*pageSize:]
		page[copy(page, magic)] = byte(way)
		binary.LittleEndian.PutUint32(page[len(magic)+1:], uint32(i))
	}
}
