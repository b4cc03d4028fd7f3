package hostfile

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"diapause.dev/api/snapshot"
)

// noAnswer says that a file system was not waited for.
const noAnswer = "its file system did not answer in time"

// Any reports whether there are volumes to note.
func (f *Files) Any() bool { return len(f.volumes) > 0 }

// Note reads the sizes and times of the files. It waits at most so long for file systems that another machine may have
// to answer for.
func (f *Files) Note(wait time.Duration) []snapshot.Volume {
	notes := make([]snapshot.Volume, len(f.volumes))
	answers := make([]chan snapshot.Volume, len(f.volumes))
	for i, v := range f.volumes {
		notes[i] = v.Volume
		switch {
		case v.local:
			notes[i] = v.note(f.began)
		case v.Unknown == "":
			answers[i] = make(chan snapshot.Volume, 1)
			go func() { answers[i] <- v.note(f.began) }()
		}
	}
	late := time.After(wait)
	for i, answer := range answers {
		if answer == nil {
			continue
		}
		select {
		case notes[i] = <-answer:
		case <-late:
			late = time.After(0)
			notes[i].Unknown = noAnswer
		}
	}
	return notes
}

// note returns the volume with the files that a sandbox which began then may have changed, in order. It changes nothing
// of v: another goroutine may use it.
func (v *volume) note(began time.Time) snapshot.Volume {
	out := v.Volume
	exact, modified := false, false
	for _, f := range v.files {
		now := *f
		if err := now.stat(); err != nil {
			out.Unknown = "its file " + short(f.Path) + " cannot be read: " + err.Error()
			continue
		}
		if !now.counts(began) || !v.follow(&now) {
			continue
		}
		if !utf8.ValidString(now.Path) {
			out.Unknown = notUTF8
			continue
		}
		exact = exact || now.Modified%int64(time.Second) != 0
		modified = modified || now.Modified >= began.UnixNano()
		out.Files = append(out.Files, now.VolumeFile)
	}
	if modified && !exact {
		out.Unknown = "its file system keeps times in whole seconds"
	}
	slices.SortFunc(out.Files, func(a, b snapshot.VolumeFile) int { return cmp.Compare(a.Path, b.Path) })
	return out
}

// follow finds the path of a file that may have been renamed since it was found, and reports whether it has one in the
// volume. Databases rename and remove files all the time.
func (v *volume) follow(f *file) bool {
	link, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(f.fd))
	if err != nil || link == f.link {
		return true
	}
	f.Path = within(link, f.mount)
	return v.holds(f)
}

// Sync writes what was changed in the files to their disks. It waits at most so long, and returns the volumes of which
// something may not be written.
func (f *Files) Sync(wait time.Duration) (left []string) {
	answers := make([]chan error, len(f.volumes))
	for i, v := range f.volumes {
		answers[i] = make(chan error, 1)
		go func() { answers[i] <- v.sync() }()
	}
	late := time.After(wait)
	for i, answer := range answers {
		var err error
		select {
		case err = <-answer:
		case <-late:
			late = time.After(0)
			err = os.ErrDeadlineExceeded
		}
		if err != nil {
			left = append(left, f.volumes[i].String())
		}
	}
	return left
}

// sync writes the files of the volume to its disk. Other files of its file system may be many, and of others.
func (v *volume) sync() error {
	for _, f := range v.files {
		if err := unix.Fsync(f.fd); err != nil {
			return err
		}
	}
	return nil
}
