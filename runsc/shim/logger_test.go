package shim

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/containerd/log"
)

// TestLibraryLogger: what we log is a line of the libraries' logger, at its level.
func TestLibraryLogger(t *testing.T) {
	var out bytes.Buffer
	entry := log.L.WithField("runtime", "r")
	was, level := entry.Logger.Out, entry.Logger.GetLevel()
	entry.Logger.SetOutput(&out)
	defer func() {
		entry.Logger.SetOutput(was)
		entry.Logger.SetLevel(level)
	}()
	l := slog.New(libraryLogger{entry: entry})
	entry.Logger.SetLevel(log.InfoLevel)
	l.Debug("not this")
	l.With("sandbox", "s").WithGroup("g").Warn("late", "took", time.Second, "error", errors.New("two\nlines"),
		slog.Group("h", "k", 7))
	for _, want := range []string{
		"level=warning", "msg=late", "runtime=r", "sandbox=s", "g.took=1s", `g.error="two\nlines"`, "g.h.k=7",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in %q", want, out.String())
		}
	}
	if strings.Count(out.String(), "\n") != 1 {
		t.Errorf("%q", out.String())
	}
	out.Reset()
	entry.Logger.SetLevel(log.WarnLevel)
	l.Info("nor this")
	entry.Logger.SetLevel(log.DebugLevel)
	l.Debug("but this")
	if strings.Contains(out.String(), "nor") || !strings.Contains(out.String(), "but this") {
		t.Errorf("after the level was changed: %q", out.String())
	}
}
