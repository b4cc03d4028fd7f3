// Command plots draws what the benchmarks have found, as SVG files:
//
//	pause.svg     the pause of a checkpoint against memory, from pause.json
//	programs.svg  the pause of real programs with its parts, from programs.json
//	answer.svg    the first answer of a restored server against what the request reads, from wake.json
//
//	plots [--from bench/out] [--to bench]
//
// A file that is missing is left out; if all are, that is an error. The command is a module of its own, so that the
// dependencies of the drawing are not Diapause's.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
)

func main() {
	from := flag.String("from", "out", "`directory` with the results")
	to := flag.String("to", ".", "`directory` for the drawings")
	flag.Parse()
	if err := run(*from, *to); err != nil {
		fmt.Fprintln(os.Stderr, "plots:", err)
		os.Exit(1)
	}
}

// drawings says which file of results becomes which drawing.
var drawings = []struct {
	from, to string
	draw     func(data []byte) (*plot.Plot, error)
}{
	{"pause.json", "pause.svg", with(drawPause)},
	{"programs.json", "programs.svg", with(drawPrograms)},
	{"wake.json", "answer.svg", with(drawAnswers)},
}

// with reads rows for a function that draws them.
func with[T any](draw func(rows []T) (*plot.Plot, error)) func(data []byte) (*plot.Plot, error) {
	return func(data []byte) (*plot.Plot, error) {
		var rows []T
		if err := json.Unmarshal(data, &rows); err != nil {
			return nil, err
		}
		return draw(rows)
	}
}

var errNothing = errors.New("nothing to draw")

func run(from, to string) error {
	plot.DefaultFont.Variant = "Sans"
	plotter.DefaultFont = plot.DefaultFont
	drawn := 0
	for _, d := range drawings {
		data, err := os.ReadFile(filepath.Join(from, d.from))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		p, err := d.draw(data)
		if errors.Is(err, errNothing) {
			continue
		}
		if err == nil {
			err = write(p, filepath.Join(to, d.to))
		}
		if err != nil {
			return fmt.Errorf("draw %s: %w", d.from, err)
		}
		fmt.Println("drew", filepath.Join(to, d.to))
		drawn++
	}
	if drawn == 0 {
		return fmt.Errorf("%s: %w: run the benchmarks first", from, errNothing)
	}
	return nil
}
