package main

import (
	"bytes"
	"cmp"
	"fmt"
	"image/color"
	"os"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// The size of a drawing.
const width, height = 760 * vg.Inch / 96, 440 * vg.Inch / 96

// palette is told apart by people who do not see all colours, too.
var palette = []color.RGBA{
	{0xb3, 0x26, 0x1e, 0xff},
	{0x7a, 0x7a, 0x7a, 0xff},
	{0x1a, 0x5f, 0xb4, 0xff},
	{0xe0, 0x8a, 0x00, 0xff},
	{0x2e, 0x8b, 0x57, 0xff},
	{0x6a, 0x3d, 0x9a, 0xff},
}

// newPlot returns a frame with a legend.
func newPlot(title, x, y string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.Padding = vg.Points(10)
	p.X.Label.Text, p.Y.Label.Text = x, y
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.Padding = vg.Points(3)
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	p.Add(grid)
	return p
}

// line is one line of a drawing.
type line struct {
	name string
	at   plotter.XYs
}

// lines returns the lines of rows: for each name, in the order in which the names come first, its points from left to
// right. Rows without a name are left out, and points that no logarithm has.
func lines[T any](rows []T, of func(T) (name string, x, y float64)) (all []line) {
	for _, r := range rows {
		name, x, y := of(r)
		if name == "" || x <= 0 || y <= 0 {
			continue
		}
		i := slices.IndexFunc(all, func(l line) bool { return l.name == name })
		if i < 0 {
			i, all = len(all), append(all, line{name: name})
		}
		all[i].at = append(all[i].at, plotter.XY{X: x, Y: y})
	}
	for _, l := range all {
		slices.SortFunc(l.at, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
	}
	return all
}

// addLines draws lines on two logarithmic axes.
func addLines(p *plot.Plot, all []line) error {
	var xs []float64
	for i, l := range all {
		drawn, dots, err := plotter.NewLinePoints(l.at)
		if err != nil {
			return err
		}
		c := palette[i%len(palette)]
		drawn.Color, drawn.Width = c, vg.Points(1.5)
		dots.Color, dots.Shape, dots.Radius = c, draw.CircleGlyph{}, vg.Points(2.5)
		p.Add(drawn, dots)
		p.Legend.Add(l.name, drawn, dots)
		for _, at := range l.at {
			xs = append(xs, at.X)
			p.Y.Min, p.Y.Max = min(p.Y.Min, at.Y), max(p.Y.Max, at.Y)
		}
	}
	slices.Sort(xs)
	xs = slices.Compact(xs)
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Min, p.X.Max = xs[0]/1.2, xs[len(xs)-1]*1.2
	p.Y.Min, p.Y.Max = p.Y.Min/1.3, p.Y.Max*3 // room for the legend
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks(xs), plot.LogTicks{Prec: -1}
	return nil
}

// ticks are at the given places.
func ticks(at []float64) plot.ConstantTicks {
	var list plot.ConstantTicks
	for _, x := range at {
		list = append(list, plot.Tick{Value: x, Label: strconv.FormatFloat(x, 'g', -1, 64)})
	}
	return list
}

// write writes a drawing to a file. It names sans-serif behind the font that the texts were measured in: not every
// viewer has that.
func write(p *plot.Plot, path string) error {
	to, err := p.WriterTo(width, height, "svg")
	if err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	var svg bytes.Buffer
	if _, err := to.WriteTo(&svg); err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	data := bytes.ReplaceAll(svg.Bytes(), []byte("Liberation Sans;"), []byte("Liberation Sans,sans-serif;"))
	return os.WriteFile(path, data, 0o644)
}
