package progress

import (
	"fmt"
	"io"
	"time"
)

// every is the shortest time between two lines about one stage.
const every = 5 * time.Second

// lines prints a line when a stage begins and then one in five seconds. Several stages may be under
// way at once.
type lines struct {
	w       io.Writer
	unit    Unit
	now     func() time.Time
	printed map[string]time.Time // when each stage had its last line
}

func newLines(w io.Writer, unit Unit) *lines {
	return &lines{w: w, unit: unit, now: time.Now, printed: make(map[string]time.Time)}
}

func (l *lines) Update(stage string, done, total int64) {
	now := l.now()
	if last, ok := l.printed[stage]; ok && now.Sub(last) < every {
		return
	}
	l.printed[stage] = now
	fmt.Fprintln(l.w, Clean(stage)+l.extent(done, total))
}

// extent says how far a stage has come; nothing when nothing is known.
func (l *lines) extent(done, total int64) string {
	switch {
	case total > 0:
		return fmt.Sprintf(": %d%% (%s of %s)", percent(done, total), l.unit.amount(done), l.unit.amount(total))
	case done > 0:
		return ": " + l.unit.amount(done)
	}
	return ""
}

func (l *lines) Note(line string) { fmt.Fprintln(l.w, Clean(line)) }

func (l *lines) Close() {}

// percent is done of total within 0 to 100; total is greater than 0.
func percent(done, total int64) int {
	return int(100 * min(max(float64(done)/float64(total), 0), 1))
}
