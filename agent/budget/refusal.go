package budget

import (
	"errors"
	"fmt"

	"diapause.dev/agent/errkind"
)

// Names are the budgets, as metrics name them.
var Names = []string{memoryName, diskName, replicationName}

const (
	memoryName      = "memory"
	diskName        = "disk"
	replicationName = "replication"
)

// refusal is an error of kind errkind.ErrBudget.
type refusal struct {
	budget string
	why    string
}

func (r *refusal) Error() string { return r.why }

// Is makes a refusal an error of kind errkind.ErrBudget.
func (r *refusal) Is(kind error) bool { return kind == errkind.ErrBudget }

func refuse(budget, format string, args ...any) error {
	return &refusal{budget: budget, why: fmt.Sprintf(format, args...)}
}

// Refused returns the name of the budget that err is a refusal of, or "" if it is none.
func Refused(err error) string {
	if r := new(refusal); errors.As(err, &r) {
		return r.budget
	}
	return ""
}

// mib is a number of bytes as messages have it.
func mib(n int64) string { return fmt.Sprintf("%d MiB", (n+1<<20-1)>>20) }
