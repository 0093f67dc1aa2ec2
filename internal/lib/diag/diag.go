// SPDX-License-Identifier: Apache-2.0

// Package diag holds findings: what is wrong in a user's input, where, and how to mend it.
// It knows no input format and prints nothing by itself.
package diag

import (
	"fmt"
	"strings"
)

// Severity says whether a finding stops the work.
type Severity string

// The severities.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Finding is one thing wrong with an input.
type Finding struct {
	Severity Severity `json:"severity"`
	Path     string   `json:"path"`            // such as cluster/demo: spec.networking.podCIDR
	Value    string   `json:"value,omitempty"` // as given; never a secret
	Message  string   `json:"message"`
	Hint     string   `json:"hint,omitempty"` // how to mend it
}

// String renders f as one line.
func (f Finding) String() string {
	var b strings.Builder
	b.WriteString(f.Path)
	if f.Value != "" {
		fmt.Fprintf(&b, " %q", f.Value)
	}

	b.WriteString(": " + f.Message)
	if f.Hint != "" {
		b.WriteString(" (" + f.Hint + ")")
	}

	return b.String()
}

// Findings is a list of findings, in the order they were found. It is an error when it holds one of severity Error.
type Findings []Finding //nolint:errname,recvcheck // mostly a list that grows, an error only where it holds one

// Errorf adds an error.
func (fs *Findings) Errorf(path, value, hint, format string, args ...any) {
	*fs = append(*fs, Finding{
		Severity: Error,
		Path:     path,
		Value:    value,
		Hint:     hint,
		Message:  fmt.Sprintf(format, args...),
	})
}

// Warnf adds a warning.
func (fs *Findings) Warnf(path, value, hint, format string, args ...any) {
	*fs = append(*fs, Finding{
		Severity: Warning,
		Path:     path,
		Value:    value,
		Hint:     hint,
		Message:  fmt.Sprintf(format, args...),
	})
}

// Err returns fs as an error if it holds an error, else nil.
func (fs Findings) Err() error {
	for _, f := range fs {
		if f.Severity == Error {
			return fs
		}
	}

	return nil
}

// Error lists the errors, one a line.
func (fs Findings) Error() string {
	var lines []string
	for _, f := range fs {
		if f.Severity == Error {
			lines = append(lines, f.String())
		}
	}

	if len(lines) == 1 {
		return lines[0]
	}

	return fmt.Sprintf("%d errors:\n  %s", len(lines), strings.Join(lines, "\n  "))
}
