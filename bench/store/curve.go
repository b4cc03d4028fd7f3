package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
)

// point is one size of chunks: what a first snapshot stores, and what the next one adds when 5 % of
// the pages have been rewritten.
type point struct {
	chunk       int
	full, added int64
}

// The drawing's size and margins, in its own units.
const (
	width, height            = 760, 440
	left, right, top, bottom = 70, 30, 84, 60
	// inset is how far the first and the last point are from the frame.
	inset = 34
)

// series is a line of the drawing.
type series struct {
	name, color string
	value       func(point) int64
}

var lines = []series{
	{"first snapshot", "#7a7a7a", func(p point) int64 { return p.full }},
	{"next one, 5 % of pages rewritten", "#b3261e", func(p point) int64 { return p.added }},
}

// drawCurve writes bench/chunksize.svg: bytes against size of chunks, with the size that is used.
func drawCurve(root string, points []point, used int) error {
	d := drawing{points: points}
	for _, p := range points {
		d.most = max(d.most, float64(p.full)/1e6, float64(p.added)/1e6)
	}
	d.step = niceStep(d.most / 6)
	d.most = math.Ceil(d.most/d.step) * d.step
	d.frame(used)
	for i, s := range lines {
		d.line(s, i)
	}
	d.b.WriteString("</svg>\n")
	return os.WriteFile(filepath.Join(root, "bench", "chunksize.svg"), []byte(d.b.String()), 0o644)
}

// niceStep returns 1, 2 or 5 times a power of ten, at least v.
func niceStep(v float64) float64 {
	base := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{1, 2, 5} {
		if v <= f*base {
			return f * base
		}
	}
	return 10 * base
}

// drawing is an SVG in the making. Its y axis is in MB, from 0.
type drawing struct {
	b          strings.Builder
	points     []point
	most, step float64
}

func (d *drawing) x(i int) float64 {
	return left + inset + float64(i)*(width-left-right-2*inset)/float64(max(len(d.points)-1, 1))
}

func (d *drawing) y(mb float64) float64 { return height - bottom - mb/d.most*(height-top-bottom) }

func (d *drawing) text(x, y float64, anchor, style, s string) {
	fmt.Fprintf(&d.b, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" %s>%s</text>\n", x, y, anchor, style, s)
}

func (d *drawing) rule(x1, y1, x2, y2 float64, style string) {
	fmt.Fprintf(&d.b, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" %s/>\n", x1, y1, x2, y2, style)
}

// frame draws the title, the axes with their labels, and a mark at the size that is used.
func (d *drawing) frame(used int) {
	fmt.Fprintf(&d.b, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "+
		"font-family=\"sans-serif\" font-size=\"12\">\n", width, height, width, height)
	fmt.Fprintf(&d.b, "<rect width=\"%d\" height=\"%d\" fill=\"#ffffff\"/>\n", width, height)
	d.text(left, 26, "start", "font-size=\"15\" font-weight=\"bold\"", "Bytes stored against size of chunks")
	d.text(left, 44, "start", "fill=\"#555555\"", "heap of a Python process in gVisor; packs and manifest")
	for v := 0.0; v <= d.most+d.step/2; v += d.step {
		d.rule(left, d.y(v), width-right, d.y(v), "stroke=\"#dddddd\"")
		d.text(left-8, d.y(v)+4, "end", "fill=\"#333333\"", fmt.Sprintf("%g", v))
	}
	for i, p := range d.points {
		if p.chunk == used {
			d.rule(d.x(i), top, d.x(i), height-bottom, "stroke=\"#1a5fb4\" stroke-dasharray=\"4 3\"")
			d.text(d.x(i)+5, top+12, "start", "fill=\"#1a5fb4\"", "in use")
		}
		d.rule(d.x(i), height-bottom, d.x(i), height-bottom+5, "stroke=\"#333333\"")
		d.text(d.x(i), height-bottom+20, "middle", "fill=\"#333333\"", sizeLabel(p.chunk))
	}
	d.rule(left, height-bottom, width-right, height-bottom, "stroke=\"#333333\"")
	d.text((left+width-right)/2, height-bottom+44, "middle", "fill=\"#333333\"", "size of chunks")
	fmt.Fprintf(&d.b, "<text transform=\"translate(20 %d) rotate(-90)\" text-anchor=\"middle\" fill=\"#333333\">MB "+
		"stored</text>\n", (top+height-bottom)/2)
}

func sizeLabel(n int) string {
	if n >= 1<<20 {
		return fmt.Sprintf("%d MiB", n>>20)
	}
	return fmt.Sprintf("%d KiB", n>>10)
}

// line draws a series with its values, and its name in the legend.
func (d *drawing) line(s series, n int) {
	var path strings.Builder
	for i, p := range d.points {
		fmt.Fprintf(&path, "%.1f,%.1f ", d.x(i), d.y(float64(s.value(p))/1e6))
	}
	fmt.Fprintf(&d.b, "<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"/>\n",
		strings.TrimSpace(path.String()), s.color)
	for i, p := range d.points {
		mb := float64(s.value(p)) / 1e6
		fmt.Fprintf(&d.b, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\"/>\n", d.x(i), d.y(mb), s.color)
		above := -9.0
		if n == 1 {
			above = 18
		}
		d.text(d.x(i), d.y(mb)+above, "middle", "fill=\""+s.color+"\"", fmt.Sprintf("%.1f", mb))
	}
	x := left + 160*float64(n)
	d.rule(x, 64, x+24, 64, "stroke=\""+s.color+"\" stroke-width=\"2\"")
	d.text(x+30, 68, "start", "fill=\""+s.color+"\"", s.name)
}
