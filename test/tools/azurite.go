package tools

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// azurite is the server of Azure Blob Storage's protocol. Node runs it.
const azurite = "azurite"

// Azurite returns the path of a server of Azure Blob Storage's protocol, and builds it if need be. In the way of
// [Packages] it makes sure that Debian's Node and npm are there.
func Azurite(ctx context.Context) (string, error) {
	if err := install(ctx, []need{{"nodejs", inPath("node")}, {"npm", inPath("npm")}}); err != nil {
		return "", err
	}
	dir, err := alone(ctx, Bin.azurite)
	return filepath.Join(dir, azurite), err
}

// azuriteFiles say which packages make up azurite, with a digest of each. The package none takes the place of those
// that are large and that the tests do not use.
var azuriteFiles = []string{"package.json", "package-lock.json", "none/package.json", "none/index.js"}

// azuriteProgram starts azurite, wherever the directory is.
const azuriteProgram = `#!/bin/sh
exec node "$(dirname "$0")/node_modules/azurite/dist/src/blob/main.js" "$@"
`

func (b Bin) azurite() group {
	module := filepath.Join(b.Root, "test", "tools", azurite)
	g := group{
		name: azurite, extra: true, module: module, packages: []string{azurite}, estimate: "half a minute",
		source: azuriteProgram,
	}
	for _, name := range azuriteFiles {
		data, err := os.ReadFile(filepath.Join(module, name))
		g.source += fmt.Sprintf("%q %v\n", data, err) // the build reports the error
	}
	g.build = func(ctx context.Context, out string) error { return buildAzurite(ctx, module, out) }
	return g
}

// buildAzurite installs azurite's packages in the directory out, in the versions of the lock file alone. npm's own
// configuration says from where. No package's scripts run.
func buildAzurite(ctx context.Context, module, out string) error {
	for _, name := range azuriteFiles {
		if err := relink(filepath.Join(module, name), filepath.Join(out, name)); err != nil {
			return err
		}
	}
	cmd := exec.CommandContext(ctx, "npm", "ci", "--ignore-scripts", "--omit=optional", "--engine-strict=false",
		"--no-audit", "--no-fund")
	cmd.Dir = out
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("tools: npm ci for azurite: %w\n%s", err, text)
	}
	if err := os.WriteFile(filepath.Join(out, azurite), []byte(azuriteProgram), 0o755); err != nil {
		return fmt.Errorf("tools: %w", err)
	}
	return nil
}
