// Command calls prints how the files of packages call each other. Run it at the root of the module:
//
//	go run ./test/tools/calls ./...
//	go run ./test/tools/calls -moves ./storage
//
// For each package it prints how many of the arrows between files go back up, and, if only one package is asked for,
// the order of its files, which arrows go up and by which calls. With -moves it also prints which functions to move, or
// files to merge, to be left with fewer. Package test/structure/calls says what an arrow is.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"diapause.dev/test/structure/calls"
)

func main() {
	moves := flag.Bool("moves", false, "print moves after which fewer arrows go up, and how many are left")
	flag.Parse()
	if err := run(flag.Args(), *moves); err != nil {
		fmt.Fprintln(os.Stderr, "calls:", err)
		os.Exit(1)
	}
}

// run prints what is to be known of the packages that match patterns.
func run(patterns []string, moves bool) error {
	packages, err := calls.Load(".", patterns...)
	if err != nil {
		return err
	}
	for _, p := range packages {
		all, up := p.Arrows()
		fmt.Printf("%s: %d of %d arrows go up\n", p.Dir, len(up), all)
		if len(packages) > 1 {
			continue
		}
		fmt.Println("  " + strings.Join(p.Order(), " "))
		for _, a := range up {
			fmt.Printf("  %s -> %s\n    %s\n", a.From, a.To, strings.Join(a.Calls, "\n    "))
		}
		if moves {
			fmt.Println("  " + strings.Join(p.Moves(), "\n  "))
		}
	}
	return nil
}
