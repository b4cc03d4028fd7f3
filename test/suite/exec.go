package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

// usageVariable names the file to which the runs of test binaries append their usage.
const usageVariable = "DIAPAUSE_SUITE_USAGE"

// usage is what one run of a test binary has cost, with all processes below it that were waited for.
type usage struct {
	Dir          string  `json:"dir"` // of the package
	User, System float64 // seconds
}

// execute runs a test binary in place of go test, and records its usage. It returns its exit status.
func execute(args []string) (int, error) {
	runtime.LockOSThread() // the death signal is for the death of this thread
	cmd := exec.Command(args[0], args[1:]...)
	cover(cmd)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	if err := cmd.Start(); err != nil {
		return 1, err
	}
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s) // it may have ended
		}
	}()
	err := cmd.Wait()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		return 1, err
	}
	if err := record(cmd.ProcessState); err != nil {
		return 1, fmt.Errorf("record the usage of %s: %w", args[0], err)
	}
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		fmt.Fprintln(os.Stderr, cmd.ProcessState)
		return 128 + int(status.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

// record appends a line to the file that the environment names. Lines of several processes do not mix.
func record(p *os.ProcessState) error {
	path := os.Getenv(usageVariable)
	if path == "" {
		return nil
	}
	dir, err := os.Getwd()
	if err != nil {
		return err
	}
	line, err := json.Marshal(usage{Dir: dir, User: p.UserTime().Seconds(), System: p.SystemTime().Seconds()})
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}
