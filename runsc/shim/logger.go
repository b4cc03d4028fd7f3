package shim

import (
	"context"
	"log/slog"
	"maps"

	"github.com/containerd/log"
)

// libraryLogger has slog write by the logger of containerd's and gVisor's libraries: gVisor's shim sets that one's
// level and file, as its options say. Its methods may be called concurrently.
type libraryLogger struct {
	entry  *log.Entry
	prefix string // of keys: the groups
}

// Enabled implements slog.Handler.
func (l libraryLogger) Enabled(_ context.Context, level slog.Level) bool {
	return l.entry.Logger.IsLevelEnabled(libraryLevel(level))
}

// Handle implements slog.Handler.
func (l libraryLogger) Handle(_ context.Context, r slog.Record) error {
	fields := make(log.Fields, r.NumAttrs())
	r.Attrs(func(a slog.Attr) bool {
		l.add(fields, l.prefix, a)
		return true
	})
	l.entry.WithTime(r.Time).WithFields(fields).Log(libraryLevel(r.Level), r.Message)
	return nil
}

// WithAttrs implements slog.Handler.
func (l libraryLogger) WithAttrs(attrs []slog.Attr) slog.Handler {
	fields := maps.Clone(l.entry.Data)
	for _, a := range attrs {
		l.add(fields, l.prefix, a)
	}
	return libraryLogger{l.entry.WithFields(fields), l.prefix}
}

// WithGroup implements slog.Handler.
func (l libraryLogger) WithGroup(name string) slog.Handler {
	return libraryLogger{l.entry, l.prefix + name + "."}
}

// add adds an attribute, or those of a group, to fields.
func (l libraryLogger) add(fields log.Fields, prefix string, a slog.Attr) {
	v := a.Value.Resolve()
	if v.Kind() != slog.KindGroup {
		fields[prefix+a.Key] = v.Any()
		return
	}
	if a.Key != "" {
		prefix += a.Key + "."
	}
	for _, x := range v.Group() {
		l.add(fields, prefix, x)
	}
}

func libraryLevel(l slog.Level) log.Level {
	switch {
	case l >= slog.LevelError:
		return log.ErrorLevel
	case l >= slog.LevelWarn:
		return log.WarnLevel
	case l >= slog.LevelInfo:
		return log.InfoLevel
	}
	return log.DebugLevel
}
