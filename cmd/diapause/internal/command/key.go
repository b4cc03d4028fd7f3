package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"diapause.dev/api/snapshot"
	"diapause.dev/cmd/internal/usage"
)

// defaultNamespace is used if no namespace is named.
const defaultNamespace = "default"

// parseKey parses "name" or "namespace/name". Namespace is the value of --namespace, or empty.
func parseKey(arg, namespace string) (snapshot.Key, error) {
	k := snapshot.Key{Namespace: namespace, Name: arg}
	if ns, name, ok := strings.Cut(arg, "/"); ok {
		if namespace != "" && namespace != ns {
			return k, usage.Error{Err: fmt.Errorf("snapshot %q is not in --namespace %s: name one namespace", arg, namespace)}
		}
		k = snapshot.Key{Namespace: ns, Name: name}
	} else if namespace == "" {
		k.Namespace = defaultNamespace
	}
	if err := k.Validate(); err != nil {
		return k, usage.Error{Err: fmt.Errorf("snapshot %.200q: %w", arg, err)}
	}
	return k, nil
}

// parseKeys parses several keys, and drops duplicates.
func parseKeys(args []string, namespace string) ([]snapshot.Key, error) {
	var keys []snapshot.Key
	seen := map[snapshot.Key]bool{}
	for _, a := range args {
		k, err := parseKey(a, namespace)
		if err != nil {
			return nil, err
		}
		if !seen[k] {
			seen[k], keys = true, append(keys, k)
		}
	}
	return keys, nil
}

// validNamespace checks the value of --namespace for commands that use it alone.
func validNamespace(ns string) error {
	if ns != "" && !snapshot.ValidName(ns) {
		return usage.Error{Err: fmt.Errorf("--namespace %.200q: not a namespace", ns)}
	}
	return nil
}

func namespaceFlag(c *cobra.Command, ns *string, usage string) {
	c.Flags().StringVarP(ns, "namespace", "n", "", usage)
}
