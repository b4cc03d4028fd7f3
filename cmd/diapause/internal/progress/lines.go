package progress

import (
	"fmt"
	"io"
	"time"

	"diapause.dev/cmd/internal/table"
)

// every is the shortest time between two lines about one stage.
const every = 5 * time.Second

// lines prints a line when a stage begins, at most one in five seconds, and one when the stage is complete. Several
// stages may be under way at once.
type lines struct {
	w       io.Writer
	unit    Unit
	now     func() time.Time
	printed map[string]printed // the last line of each stage
}

// printed is a line about a stage.
type printed struct {
	at       time.Time
	complete bool
}

func newLines(w io.Writer, unit Unit) *lines {
	return &lines{w: w, unit: unit, now: time.Now, printed: make(map[string]printed)}
}

func (l *lines) Update(stage string, done, total int64) {
	now, complete := l.now(), total > 0 && done >= total
	last, ok := l.printed[stage]
	if ok && now.Sub(last.at) < every && (last.complete || !complete) {
		return
	}
	l.printed[stage] = printed{now, complete}
	fmt.Fprintln(l.w, table.Clean(stage)+l.extent(done, total))
}

// extent says how far a stage has come. It is empty if that is not known.
func (l *lines) extent(done, total int64) string {
	switch {
	case total > 0:
		return fmt.Sprintf(": %d%% (%s of %s)", percent(done, total), l.unit.amount(done), l.unit.amount(total))
	case done > 0:
		return ": " + l.unit.amount(done)
	}
	return ""
}

func (l *lines) Note(line string) { fmt.Fprintln(l.w, table.Clean(line)) }

func (l *lines) Close() {}

// percent is done of total within 0 to 100; total is greater than 0.
func percent(done, total int64) int {
	return int(100 * min(max(float64(done)/float64(total), 0), 1))
}
