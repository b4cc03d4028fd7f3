// Package view turns the agent's answers into what the operator reads: tables for people, JSON for
// programs. The JSON field names are an interface and stay as they are: sizes are bytes, durations
// are milliseconds (the suffix _ms), times are RFC 3339.
package view
