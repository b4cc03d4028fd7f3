package view

import (
	"fmt"
	"time"
)

func when(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func ms(v float64) string { return fmt.Sprintf("%.1f ms", v) }
