package view

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// Format is how results are printed. It is a pflag.Value.
type Format string

// The formats.
const (
	Table Format = "table"
	JSON  Format = "json"
)

// String returns the format's name.
func (f *Format) String() string { return string(*f) }

// Set sets the format by its name.
func (f *Format) Set(s string) error {
	switch v := Format(s); v {
	case Table, JSON:
		*f = v
		return nil
	}
	return fmt.Errorf("want %s or %s", Table, JSON)
}

// Type names the value in usage texts.
func (f *Format) Type() string { return "table|json" }

// Document is a result that can be printed in every format.
type Document interface {
	// Table writes the result for people.
	Table(w io.Writer) error
}

// Print writes a result to w in this format. JSON is one document.
func (f Format) Print(w io.Writer, d Document) error {
	if f != JSON {
		return d.Table(w)
	}
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(d)
}

func milliseconds(d *durationpb.Duration) float64 {
	return float64(d.AsDuration()) / float64(time.Millisecond)
}

// timeOf returns nil for a time that is not set.
func timeOf(t *timestamppb.Timestamp) *time.Time {
	if t == nil || !t.IsValid() {
		return nil
	}
	v := t.AsTime()
	return &v
}
