package command

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	localv1 "diapause.dev/api/local/v1"
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

// completeSnapshots offers the names of snapshots to the shell. If the agent is away, it offers nothing.
func (t *tool) completeSnapshots(c *cobra.Command, _ []string,
	_ string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	ctx, cancel := t.within(c.Context(), askTime)
	defer cancel()
	var names []cobra.Completion
	_ = t.ask(ctx, func(a localv1.AgentClient) error {
		r, err := a.List(ctx, &localv1.ListRequest{})
		for _, s := range r.GetSnapshots() {
			names = append(names, s.GetNamespace()+"/"+s.GetName())
		}
		return err
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}
