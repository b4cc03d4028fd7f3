// Package view turns the agent's answers into output: tables for people, JSON for programs. The JSON field names are
// an interface, and stay as they are. Sizes are in bytes, durations in milliseconds (with the suffix _ms), times in
// RFC 3339.
package view
