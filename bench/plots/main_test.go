package main

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// results are a file of each kind.
var results = map[string]string{
	"pause.json": `[
		{"mode": "diapause", "mem_mib": 64, "cpu_limit_m": 0, "p50_ms": 40},
		{"mode": "diapause", "mem_mib": 1024, "cpu_limit_m": 0, "p50_ms": 80},
		{"mode": "limited", "mem_mib": 64, "cpu_limit_m": 200, "p50_ms": 400},
		{"mode": "stock-none", "mem_mib": 64, "cpu_limit_m": 0, "p50_ms": 45}]`,
	"programs.json": `[
		{"program": "redis", "runsc": "stock", "pause_p50_ms": 60, "stopping_p50_ms": 1, "kernel_state_p50_ms": 40,
		 "pages_p50_ms": 5, "resuming_p50_ms": 4, "stock_p50_ms": 120},
		{"program": "nginx", "runsc": "fast", "pause_p50_ms": 90, "stopping_p50_ms": 2, "kernel_state_p50_ms": 70,
		 "pages_p50_ms": 0, "resuming_p50_ms": 3, "stock_p50_ms": 0}]`,
	"wake.json": `[
		{"scenario": "first-answer", "mode": "wire-again", "touched_mib": 4, "p50_ms": 400},
		{"scenario": "first-answer", "mode": "wire-again", "touched_mib": 20, "p50_ms": 600},
		{"scenario": "ready", "mode": "cold-pod", "p50_ms": 300}]`,
}

// texts returns all texts of an SVG, or an error if it is none.
func texts(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all strings.Builder
	for d := xml.NewDecoder(f); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return all.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		if data, ok := token.(xml.CharData); ok {
			all.Write(data)
		}
	}
}

// TestRun: each file of results becomes a drawing that names all it shows.
func TestRun(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	for name, text := range results {
		if err := os.WriteFile(filepath.Join(from, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := run(from, to); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"pause.svg":    {"diapause", "stock-none", "1024"},
		"programs.svg": {"redis (stock)", "nginx (fast)", "kernel state", "as the client saw it"},
		"answer.svg":   {"wire-again", "20"},
	} {
		got := texts(t, filepath.Join(to, name))
		for _, w := range want {
			if !strings.Contains(got, w) {
				t.Errorf("%s does not say %q", name, w)
			}
		}
		if strings.Contains(got, "limited") || strings.Contains(got, "cold-pod") {
			t.Errorf("%s says what it does not show: %s", name, got)
		}
	}
}

// TestRunPart: what there is is drawn, and nothing at all is an error.
func TestRunPart(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	if err := run(from, to); !errors.Is(err, errNothing) {
		t.Errorf("without results: %v", err)
	}
	if err := os.WriteFile(filepath.Join(from, "wake.json"), []byte(results["wake.json"]), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(from, to); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(from, "pause.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(from, to); err == nil {
		t.Error("half a file was drawn")
	}
}
