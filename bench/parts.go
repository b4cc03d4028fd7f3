package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// logDir is where the sentries of the benchmark of programs write their logs. It is on a tmpfs.
const logDir = runDir + "/sentry/"

// parts are those of the sentry's own pause, by its log, which follow each other.
type parts struct {
	begin, end time.Time // when it began to stop tasks, and when they had resumed

	stopping time.Duration // until the kernel's state begins to be saved: tasks and network stopped, files prepared
	kernel   time.Duration // while the kernel's state is saved; pages are saved beside it
	pages    time.Duration // from then until the last page is saved
	resuming time.Duration // from then until the tasks have resumed
}

func (p parts) String() string {
	return fmt.Sprintf("stopping %.1f, kernel state %.1f, pages %.1f, resuming %.1f", milliseconds(p.stopping),
		milliseconds(p.kernel), milliseconds(p.pages), milliseconds(p.resuming))
}

// What the sentry says, in the order in which it does.
const (
	saidBegin      = "Sandbox save started, pausing all tasks."
	saidKernel     = "Kernel save took ["
	saidSaved      = "Overall save took ["
	saidResumed    = "Tasks resumed after save."
	saidKernelLoad = "Kernel load took ["
)

var errNotLogged = errors.New("the sentry's log does not say it")

// logged returns the parts of the last pause of a pod's sandbox.
func (n *node) logged(pod string) (parts, error) {
	log, err := sentryLog(pod)
	if err != nil {
		return parts{}, err
	}
	return parseParts(log, time.Now())
}

// kernelLoad returns how long the sentry of a restored pod has taken to load the kernel's state.
func kernelLoad(pod string) (time.Duration, error) {
	log, err := sentryLog(pod)
	if err != nil {
		return 0, err
	}
	_, took, err := lastSaid(log, saidKernelLoad, time.Now())
	return took, err
}

// sentryLog reads the log of the sentry of a pod's sandbox.
func sentryLog(pod string) (string, error) {
	paths, err := filepath.Glob(logDir + "*.boot.txt")
	if err != nil {
		return "", err
	}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		head, _, _ := bytes.Cut(data, []byte("Configuration:"))
		if bytes.Contains(head, []byte(pod)) {
			return string(data), nil
		}
	}
	return "", fmt.Errorf("no sentry of pod %s among %d logs", pod, len(paths))
}

// parseParts reads the parts of the last pause from a log that was read at a time.
func parseParts(log string, now time.Time) (p parts, err error) {
	i := strings.LastIndex(log, saidBegin)
	if i < 0 {
		return p, fmt.Errorf("%q: %w", saidBegin, errNotLogged)
	}
	log = log[strings.LastIndexByte(log[:i], '\n')+1:]
	if p.begin, _, err = lastSaid(log, saidBegin, now); err != nil {
		return p, err
	}
	kernelEnd, kernel, err := lastSaid(log, saidKernel, now)
	if err != nil {
		return p, err
	}
	saved, _, err := lastSaid(log, saidSaved, now)
	if err != nil {
		return p, err
	}
	if p.end, _, err = lastSaid(log, saidResumed, now); err != nil {
		return p, err
	}
	p.stopping, p.kernel = kernelEnd.Add(-kernel).Sub(p.begin), kernel
	p.pages, p.resuming = saved.Sub(kernelEnd), p.end.Sub(saved)
	return p, nil
}

// line matches what a line of the log begins with: level, month and day, time.
var line = regexp.MustCompile(`^[IWDE](\d{4} \d\d:\d\d:\d\d\.\d{6}) `)

// lastSaid returns when a log, read at a time, says a text for the last time, and the duration in brackets that the
// text begins, if it ends in a bracket.
func lastSaid(log, text string, now time.Time) (at time.Time, took time.Duration, err error) {
	i := strings.LastIndex(log, text)
	if i < 0 {
		return at, 0, fmt.Errorf("%q: %w", text, errNotLogged)
	}
	m := line.FindStringSubmatch(log[strings.LastIndexByte(log[:i], '\n')+1:])
	if m == nil {
		return at, 0, fmt.Errorf("%q: no time before it: %w", text, errNotLogged)
	}
	stamp := fmt.Sprintf("%d%s", now.Year(), m[1])
	if at, err = time.ParseInLocation("20060102 15:04:05.000000", stamp, time.Local); err != nil {
		return at, 0, err
	}
	if at.After(now.AddDate(0, 0, 1)) { // of the year before
		at = at.AddDate(-1, 0, 0)
	}
	if strings.HasSuffix(text, "[") {
		value, _, _ := strings.Cut(log[i+len(text):], "]")
		took, err = time.ParseDuration(value)
	}
	return at, took, err
}
