package progress

import (
	"fmt"
	"io"
	"time"

	"github.com/schollz/progressbar/v3"

	"diapause.dev/cmd/internal/table"
)

// bar draws one bar for the stage under way. A stage that ends leaves nothing behind.
type bar struct {
	w     io.Writer
	unit  Unit
	stage string
	total int64
	bar   *progressbar.ProgressBar
}

func (b *bar) Update(stage string, done, total int64) {
	if total <= 0 {
		total = -1 // a spinner
	}
	switch {
	case b.bar == nil || total != b.total:
		b.Close()
		b.stage, b.total, b.bar = stage, total, b.begin(table.Clean(stage), total)
	case stage != b.stage:
		b.stage = stage
		b.bar.Describe(table.Clean(stage))
	}
	if total > 0 {
		done = min(max(done, 0), total)
	}
	_ = b.bar.Set64(done) // fails only beyond the total
}

func (b *bar) begin(stage string, total int64) *progressbar.ProgressBar {
	return progressbar.NewOptions64(total,
		progressbar.OptionSetWriter(b.w),
		progressbar.OptionSetDescription(stage),
		progressbar.OptionShowBytes(b.unit == Bytes),
		progressbar.OptionUseIECUnits(true),
		progressbar.OptionShowCount(),
		progressbar.OptionSetWidth(30),
		progressbar.OptionSetTheme(progressbar.ThemeUnicode),
		progressbar.OptionThrottle(65*time.Millisecond),
		progressbar.OptionSetSpinnerChangeInterval(0), // no goroutine of its own
		progressbar.OptionSetRenderBlankState(true),
		progressbar.OptionClearOnFinish(),
	)
}

func (b *bar) Note(line string) {
	b.Close()
	fmt.Fprintln(b.w, table.Clean(line))
}

func (b *bar) Close() {
	if b.bar != nil {
		_ = b.bar.Clear() // if the terminal cannot be written to, it cannot be cleaned either
		_ = b.bar.Exit()
		b.bar = nil
	}
}
