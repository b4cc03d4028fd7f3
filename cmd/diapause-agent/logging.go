package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/pflag"
	gvisorlog "gvisor.dev/gvisor/pkg/log"

	"diapause.dev/cmd/internal/usage"
)

// logging says what is logged to standard error, and how.
type logging struct{ level, format string }

// register registers the flags. Of what is less severe than level nothing is logged by default.
func (l *logging) register(f *pflag.FlagSet, level string) {
	f.StringVar(&l.level, "log-level", level, "debug, info, warn or error")
	f.StringVar(&l.format, "log-format", "text", "text or json")
}

// logger returns the logger that the flags ask for. GVisor's packages log nothing.
func (l *logging) logger() (*slog.Logger, error) { return l.loggerTo(os.Stderr) }

func (l *logging) loggerTo(w io.Writer) (*slog.Logger, error) {
	var o slog.HandlerOptions
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.level)); err != nil {
		return nil, usage.Error{Err: fmt.Errorf("--log-level: %w", err)}
	}
	o.Level = level
	gvisorlog.SetTarget(gvisorlog.GoogleEmitter{Writer: &gvisorlog.Writer{Next: io.Discard}})
	switch l.format {
	case "text":
		return slog.New(slog.NewTextHandler(w, &o)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, &o)), nil
	}
	return nil, usage.Error{Err: fmt.Errorf("--log-format: %q is neither text nor json", l.format)}
}
