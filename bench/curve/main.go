// Command curve draws bytes stored against size of chunks. It reads points as JSON from standard input and
// writes an SVG to standard output. It is a module of its own, so that the dependencies of the drawing are
// not Diapause's.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"image/color"
	"io"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// point is one size of chunks: what a first snapshot stores, and what the next one adds when 5 % of
// the pages have been rewritten.
type point struct {
	Chunk string `json:"chunk"` // the size, with its unit
	Full  int64  `json:"full"`  // bytes
	Added int64  `json:"added"` // bytes
	Used  bool   `json:"used"`  // the size that is in use
}

// The size of the drawing.
const width, height = 760 * vg.Inch / 96, 440 * vg.Inch / 96

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "curve:", err)
		os.Exit(1)
	}
}

func run(r io.Reader, w io.Writer) error {
	var points []point
	if err := json.NewDecoder(r).Decode(&points); err != nil {
		return fmt.Errorf("read points: %w", err)
	}
	if len(points) == 0 {
		return fmt.Errorf("read points: there are none")
	}
	plot.DefaultFont.Variant = "Sans"
	plotter.DefaultFont = plot.DefaultFont
	p := newPlot(points)
	if err := addAll(p, points); err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	return write(p, w)
}

// newPlot returns the frame: title, axes, and a name for each size.
func newPlot(points []point) *plot.Plot {
	p := plot.New()
	p.Title.Text = "Bytes stored against size of chunks\nheap of a Python process in gVisor; packs and manifest"
	p.Title.Padding = vg.Points(10)
	p.X.Label.Text, p.Y.Label.Text = "size of chunks", "MB stored"
	names := make([]string, len(points))
	for i, x := range points {
		names[i] = x.Chunk
		p.Y.Max = max(p.Y.Max, 1.25*mb(x.Full), 1.25*mb(x.Added))
	}
	p.NominalX(names...)
	p.X.Min, p.X.Max = -0.35, float64(len(points))-0.65
	p.Y.Min = 0
	p.Legend.Top, p.Legend.Left = true, true
	p.Legend.Padding = vg.Points(3)
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	p.Add(grid)
	return p
}

// addAll draws both lines, and marks the size that is in use.
func addAll(p *plot.Plot, points []point) error {
	full, added := make(plotter.XYs, len(points)), make(plotter.XYs, len(points))
	for i, x := range points {
		full[i] = plotter.XY{X: float64(i), Y: mb(x.Full)}
		added[i] = plotter.XY{X: float64(i), Y: mb(x.Added)}
		if x.Used {
			if err := addMark(p, float64(i)); err != nil {
				return err
			}
		}
	}
	if err := addLine(p, "first snapshot", full, color.Gray{0x7a}, vg.Points(5)); err != nil {
		return err
	}
	return addLine(p, "next one, 5 % of pages rewritten", added, color.RGBA{0xb3, 0x26, 0x1e, 0xff}, vg.Points(-13))
}

// addLine draws a line with the value at each point, that far above it.
func addLine(p *plot.Plot, name string, at plotter.XYs, c color.Color, above vg.Length) error {
	line, dots, err := plotter.NewLinePoints(at)
	if err != nil {
		return err
	}
	line.Color, line.Width = c, vg.Points(1.5)
	dots.Color, dots.Shape, dots.Radius = c, draw.CircleGlyph{}, vg.Points(2.5)
	values := make([]string, len(at))
	for i := range at {
		values[i] = fmt.Sprintf("%.1f", at[i].Y)
	}
	labels, err := plotter.NewLabels(plotter.XYLabels{XYs: at, Labels: values})
	if err != nil {
		return err
	}
	for i := range labels.TextStyle {
		labels.TextStyle[i].Color, labels.TextStyle[i].XAlign = c, draw.XCenter
	}
	labels.Offset.Y = above
	p.Add(line, dots, labels)
	p.Legend.Add(name, line, dots)
	return nil
}

// addMark marks the size that is in use.
func addMark(p *plot.Plot, x float64) error {
	blue := color.RGBA{0x1a, 0x5f, 0xb4, 0xff}
	line, err := plotter.NewLine(plotter.XYs{{X: x, Y: 0}, {X: x, Y: p.Y.Max}})
	if err != nil {
		return err
	}
	line.Color, line.Dashes = blue, []vg.Length{vg.Points(3), vg.Points(2)}
	label, err := plotter.NewLabels(plotter.XYLabels{XYs: plotter.XYs{{X: x, Y: 0}}, Labels: []string{"in use"}})
	if err != nil {
		return err
	}
	label.TextStyle[0].Color, label.Offset = blue, vg.Point{X: vg.Points(4), Y: vg.Points(4)}
	p.Add(line, label)
	return nil
}

// write writes the SVG. It names sans-serif behind the font that the texts were measured in: not every
// viewer has that.
func write(p *plot.Plot, w io.Writer) error {
	to, err := p.WriterTo(width, height, "svg")
	if err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	var svg bytes.Buffer
	if _, err := to.WriteTo(&svg); err != nil {
		return fmt.Errorf("draw: %w", err)
	}
	_, err = w.Write(bytes.ReplaceAll(svg.Bytes(), []byte("Liberation Sans;"), []byte("Liberation Sans,sans-serif;")))
	return err
}

func mb(n int64) float64 { return float64(n) / 1e6 }
