package main

import (
	"errors"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// programRow is what is drawn of a row of programs.json.
type programRow struct {
	Program     string  `json:"program"`
	Runsc       string  `json:"runsc"`
	CPU         int     `json:"cpu_limit_m"`
	Pause       float64 `json:"pause_p50_ms"`
	Stopping    float64 `json:"stopping_p50_ms"`
	KernelState float64 `json:"kernel_state_p50_ms"`
	Pages       float64 `json:"pages_p50_ms"`
	Resuming    float64 `json:"resuming_p50_ms"`
	Stock       float64 `json:"stock_p50_ms"`
}

// programParts are the parts of a pause, in their order.
var programParts = []struct {
	name string
	of   func(programRow) float64
}{
	{"stopping", func(r programRow) float64 { return r.Stopping }},
	{"kernel state", func(r programRow) float64 { return r.KernelState }},
	{"pages", func(r programRow) float64 { return r.Pages }},
	{"resuming", func(r programRow) float64 { return r.Resuming }},
}

// barWidth is that of a program's bar.
const barWidth = 20 * vg.Inch / 96

// drawPrograms draws a bar for each program without a limit of processor time: the parts of the sentry's pause upon
// each other. Dots are what the client has seen of it, and what it has seen with stock gVisor.
func drawPrograms(all []programRow) (*plot.Plot, error) {
	var rows []programRow
	for _, r := range all {
		if r.CPU == 0 {
			rows = append(rows, r)
		}
	}
	if len(rows) == 0 {
		return nil, errNothing
	}
	p := newPlot("The pause of real programs under load: parts of the sentry's, and the client's", "", "ms, p50")
	var below *plotter.BarChart
	for i, part := range programParts {
		bars, err := plotter.NewBarChart(values(rows, part.of), barWidth)
		if err != nil {
			return nil, err
		}
		bars.Color, bars.LineStyle.Width = palette[len(palette)-1-i], 0
		if below != nil {
			bars.StackOn(below)
		}
		below = bars
		p.Add(bars)
		p.Legend.Add(part.name, bars)
	}
	seen := values(rows, func(r programRow) float64 { return r.Pause })
	stock := values(rows, func(r programRow) float64 { return r.Stock })
	err := errors.Join(addDots(p, "as the client saw it", color.Black, seen),
		addDots(p, "the client, stock gVisor", palette[0], stock))
	if err != nil {
		return nil, err
	}
	p.NominalX(names(rows)...)
	p.X.Tick.Label.Rotation, p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = math.Pi/6, draw.XRight, draw.YCenter
	p.X.Min, p.X.Max = -0.6, float64(len(rows))-0.4
	p.Y.Min, p.Y.Max = 0, p.Y.Max*1.3 // room for the legend
	return p, nil
}

func values(rows []programRow, of func(programRow) float64) (list plotter.Values) {
	for _, r := range rows {
		list = append(list, of(r))
	}
	return list
}

// names returns the programs' names, with those of the runsc if there are several.
func names(rows []programRow) (list []string) {
	for _, r := range rows {
		name := r.Program
		if r.Runsc != rows[0].Runsc || r.Runsc != rows[len(rows)-1].Runsc {
			name += " (" + r.Runsc + ")"
		}
		list = append(list, name)
	}
	return list
}

// addDots adds a dot for each value that was measured.
func addDots(p *plot.Plot, name string, c color.Color, values plotter.Values) error {
	var at plotter.XYs
	for i, v := range values {
		if v > 0 {
			at = append(at, plotter.XY{X: float64(i), Y: v})
		}
	}
	if len(at) == 0 {
		return nil
	}
	dots, err := plotter.NewScatter(at)
	if err != nil {
		return err
	}
	dots.Color, dots.Shape, dots.Radius = c, draw.CircleGlyph{}, vg.Points(3)
	p.Add(dots)
	p.Legend.Add(name, dots)
	return nil
}
