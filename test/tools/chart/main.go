// Command chart generates two parts of charts/diapause. Run it at the root of the module: make generate.
//
//   - the templates of definitions, roles and admission policies, from manifests/;
//   - the table of values in the chart's README.md, from its values.yaml.
//
// The other templates are written by hand. test/chart compares what the chart renders with manifests/, object by
// object.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "chart:", err)
		os.Exit(1)
	}
}

// run writes all generated files below the directory root.
func run(root string) error {
	files, err := generate(root)
	if err != nil {
		return err
	}
	for path, content := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate returns the generated files, by their paths seen from root.
func generate(root string) (map[string][]byte, error) {
	files := map[string][]byte{}
	if err := templates(root, files); err != nil {
		return nil, err
	}
	return files, values(root, files)
}
