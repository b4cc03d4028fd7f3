package e2e

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// logsDir is where a test that has failed leaves what is known of it, unless the tests were started with -artifacts.
const logsDir = "../../.cache/test/logs"

// How much of what is known a failed test prints. Of a long output CI keeps the end alone.
const (
	printedLines    = 30 // of events, and of each list
	printedWarnings = 15
	printedWidth    = 400 // bytes of a warning
)

// reportTime bounds the collection of what is known.
const reportTime = time.Minute

// report writes all that is known of a namespace to a file. It returns the file's path, and in short what may be the
// reason of a failure.
func (w *world) report(ctx context.Context, namespace string) string {
	return w.reportTo(ctx, w.logsDir(), w.Name(), namespace)
}

// logsDir is the directory for what the test leaves when it fails.
func (w *world) logsDir() string {
	if flag.Lookup("test.artifacts").Value.String() == "true" {
		return w.ArtifactDir()
	}
	return logsDir
}

func (c *cluster) reportTo(ctx context.Context, dir, name, namespace string) string {
	ctx, cancel := context.WithTimeout(ctx, reportTime)
	defer cancel()
	short := c.summarize(ctx, namespace)
	path, err := writeLog(dir, name, short+c.describe(ctx, namespace))
	if err != nil {
		return fmt.Sprintf("%sthe logs are lost: %v", short, err)
	}
	return fmt.Sprintf("%sall objects, events and logs are in %s", short, path)
}

// writeLog writes what is known under a name in a directory, and returns the file's path.
func writeLog(dir, name, text string) (path string, err error) {
	path, err = filepath.Abs(filepath.Join(dir, strings.ReplaceAll(name, "/", "_")+".log"))
	if err != nil {
		return "", err
	}
	return path, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644))
}

// eachCondition has kubectl print the conditions of each object in one line.
const eachCondition = `jsonpath={range .items[*]}{.kind} {.metadata.name}: {range .status.conditions[*]}` +
	`{.type}={.status} {.reason} "{.message}"; {end}{"\n"}{end}`

// summarize tells in short how a namespace and the agents fare.
func (c *cluster) summarize(ctx context.Context, namespace string) string {
	var b strings.Builder
	get := func(namespace string, args ...string) {
		out, err := c.Kubectl(ctx, append([]string{"--namespace=" + namespace, "get"}, args...)...)
		fmt.Fprintf(&b, "%s of %s: %v\n%s\n", args[0], namespace, err, last(out, printedLines))
	}
	get(namespace, "pods", "--output=wide")
	get(namespace, "pods,podsnapshots,podsnapshotmanualtriggers", "--output="+eachCondition)
	get(namespace, "events", "--sort-by=.lastTimestamp")
	get(system, "pods", "--output=wide")
	fmt.Fprintf(&b, "warnings of the agents and controllers:\n%s\n", c.warnings())
	return b.String()
}

// last returns the last lines of a text.
func last(text string, most int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-most):], "\n")
}

// warnings returns the last warnings and errors of the agents and controllers on all nodes.
func (c *cluster) warnings() string {
	var all []string
	err := c.eachLog(func(node, _, log string) {
		for line := range strings.Lines(log) {
			if strings.Contains(line, " level=WARN ") || strings.Contains(line, " level=ERROR ") {
				all = append(all, strings.TrimSpace(line[:min(len(line), printedWidth)])+" ("+node+")")
			}
		}
	})
	slices.SortStableFunc(all, cmp.Compare[string]) // each begins with its time
	all = all[max(0, len(all)-printedWarnings):]
	if err != nil {
		all = append(all, err.Error())
	}
	return strings.Join(all, "\n")
}

// describe is all there is to know of a namespace.
func (c *cluster) describe(ctx context.Context, namespace string) string {
	out, err := c.Kubectl(ctx, "--namespace="+namespace, "get", "--output=yaml",
		"pods,podsnapshots,podsnapshotmanualtriggers,podsnapshotpolicies,sleeppolicies")
	events, _ := c.Kubectl(ctx, "--namespace="+namespace, "get", "events") // the error is the same
	return fmt.Sprintf("%v\n%s\n%s\n%s", err, out, events, c.systemLogs(ctx))
}

// systemLogs is what there is to know of the agents and the controller. Their logs are read from the nodes, whose
// kubelets keep that of an agent that ended, too.
func (c *cluster) systemLogs(ctx context.Context) string {
	var b strings.Builder
	for _, args := range [][]string{
		{"get", "pods", "--output=wide"},
		{"get", "events"},
	} {
		out, err := c.Kubectl(ctx, append([]string{"--namespace=" + system}, args...)...)
		fmt.Fprintf(&b, "kubectl %s: %v\n%s\n", strings.Join(args, " "), err, out)
	}
	err := c.eachLog(func(node, container, log string) { fmt.Fprintf(&b, "%s, %s:\n%s\n", node, container, log) })
	if err != nil {
		fmt.Fprintf(&b, "logs: %v\n", err)
	}
	return b.String()
}

// eachLog calls do with every log of the agents' and the controllers' containers.
func (c *cluster) eachLog(do func(node, container, log string)) (err error) {
	for _, n := range c.Nodes() {
		files, globErr := filepath.Glob(n.Path("/var/log/pods/" + system + "_*/*/*.log"))
		err = errors.Join(err, globErr)
		for _, f := range files {
			log, readErr := os.ReadFile(f)
			err = errors.Join(err, readErr)
			do(n.Name, filepath.Base(filepath.Dir(f)), string(log))
		}
	}
	return err
}
