// SPDX-License-Identifier: Apache-2.0

// Package diag has findings, which report what is wrong in a user's input, where, and how to fix it, and
// errors with hints. It does not know any input format and prints nothing.
package diag

import (
	"fmt"
	"strings"
)

// Severity is whether a finding is an error or a warning.
type Severity string

// The severities. A command must not continue with findings of severity Error.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Finding is one problem of an input.
type Finding struct {
	Severity Severity `json:"severity"`
	// Path is the location of the value, such as "cluster/demo: spec.networking.podCIDR".
	Path string `json:"path"`
	// Value is the value as given; empty if it is missing. It must not be a secret.
	Value string `json:"value,omitempty"`
	// Message completes a sentence that begins with the path: "overlaps 10.0.0.0/16".
	Message string `json:"message"`
	// Hint is how to fix it, in the imperative; may be empty.
	Hint string `json:"hint,omitempty"`
	// File is the name of the file that contains the value; empty if it is not from a file.
	File string `json:"file,omitempty"`
	// Line and Column are the place in File, from 1; 0 if unknown.
	Line int `json:"line,omitempty"`
	// Column is in characters.
	Column int `json:"column,omitempty"`
	// Covers is the path of the field that this finding explains: other findings about it, or about what is
	// below it, only follow from this one. Of a misspelled field it is the field with the right name. Empty:
	// none.
	Covers string `json:"-"`
}

// String returns f as one line: file:line:column: path "value": message (hint).
func (f Finding) String() string {
	var b strings.Builder
	if f.File != "" && f.Line > 0 {
		fmt.Fprintf(&b, "%s:%d:%d: ", f.File, f.Line, max(f.Column, 1))
	}

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

// Findings is a list of findings, in the order in which they were found. [Findings.Err] returns it as an
// error if it contains one of severity Error.
type Findings []Finding //nolint:errname,recvcheck // a list that callers append to; an error only through Err

// Errorf adds a finding of severity Error. format and args give the message.
func (fs *Findings) Errorf(path, value, hint, format string, args ...any) {
	*fs = append(*fs, Finding{
		Severity: Error,
		Path:     path,
		Value:    value,
		Hint:     hint,
		Message:  fmt.Sprintf(format, args...),
	})
}

// Warnf adds a finding of severity Warning. format and args give the message.
func (fs *Findings) Warnf(path, value, hint, format string, args ...any) {
	*fs = append(*fs, Finding{
		Severity: Warning,
		Path:     path,
		Value:    value,
		Hint:     hint,
		Message:  fmt.Sprintf(format, args...),
	})
}

// Err returns fs as an error if it contains a finding of severity Error, otherwise nil.
func (fs Findings) Err() error {
	for _, f := range fs {
		if f.Severity == Error {
			return fs
		}
	}

	return nil
}

// Error returns the findings of severity Error, one per line.
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
