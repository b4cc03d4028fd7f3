package main

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
)

// TestLogFormat: each line of the log is an object of JSON, or keys and values, as the flag says.
func TestLogFormat(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out bytes.Buffer
		log, err := (&logging{level: "info", format: format}).loggerTo(&out)
		if err != nil {
			t.Fatal(err)
		}
		log.Debug("hidden")
		log.Info("pod sleeps", slog.String("pod", "a/b \"c\"\n"))
		var line struct{ Level, Msg, Pod string }
		isObject := json.Unmarshal(out.Bytes(), &line) == nil
		if isObject != (format == "json") || strings.Count(out.String(), "\n") != 1 ||
			isObject && (line.Level != "INFO" || line.Msg != "pod sleeps" || line.Pod != "a/b \"c\"\n") {
			t.Errorf("%s: %q", format, out.String())
		}
	}
}
