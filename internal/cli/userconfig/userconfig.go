// SPDX-License-Identifier: Apache-2.0

// Package userconfig reads the defaults of a user: the state store, the region and other settings that
// would otherwise be given with every command. A setting's value is that of its flag, else of its
// environment variable, else of the configuration file, else the default; [Resolve] also returns which.
// The package reads no environment and no file, and knows no command.
package userconfig

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/lib/yamltext"
)

// Setting is one thing that a user can set for all commands.
type Setting struct {
	// Name of the field in the file.
	Name string
	// Flag that overrides it, without dashes.
	Flag string
	// Variables that override the file; the first that is set counts.
	Variables []string
	// Default is what holds if nothing sets it, for people.
	Default string
	// isPath: a leading ~/ in the file is the home directory.
	isPath bool
	// check returns what is wrong with a value and how to fix it; empty if it is valid.
	check func(value string) (message, hint string)
}

// Settings returns all settings, in the order in which they are shown.
func Settings() []Setting {
	return []Setting{
		{
			Name:      "state",
			Flag:      "state",
			Variables: []string{"SLIPWAY_STATE"},
			check:     checkStoreURL,
		},
		{
			Name:      "stateKey",
			Flag:      "state-key",
			Variables: []string{"SLIPWAY_STATE_KEY"},
			isPath:    true,
		},
		{
			Name:      "stateOwner",
			Flag:      "state-owner",
			Variables: []string{"SLIPWAY_STATE_OWNER"},
			Default:   "the account of the caller",
			check:     checkAccount,
		},
		{
			Name:      "cluster",
			Flag:      "name",
			Variables: []string{"SLIPWAY_CLUSTER"},
			check:     checkClusterName,
		},
		{
			Name:      "region",
			Flag:      "region",
			Variables: []string{"AWS_REGION", "AWS_DEFAULT_REGION"},
			Default:   "as the AWS SDK finds it",
			check:     checkRegion,
		},
		{
			Name:      "profile",
			Flag:      "profile",
			Variables: []string{"AWS_PROFILE"},
			Default:   "as the AWS SDK finds it",
		},
		{
			Name:      "output",
			Flag:      "output",
			Variables: []string{"SLIPWAY_OUTPUT"},
			Default:   "table",
			check:     checkOutput,
		},
		{
			Name:      "assets",
			Flag:      "assets",
			Variables: []string{"SLIPWAY_ASSETS"},
			Default:   "the built-in catalogue",
			isPath:    true,
		},
		{
			Name:      "sshProxy",
			Flag:      "proxy-command",
			Variables: []string{"SLIPWAY_SSH_PROXY"},
			Default:   "connect without a proxy",
		},
	}
}

// names returns the fields that a file may contain.
func names() []string {
	var out []string
	for _, s := range Settings() {
		out = append(out, s.Name)
	}

	return out
}

// Path returns the configuration file: SLIPWAY_CONFIG, else slipway/config.yaml in XDG_CONFIG_HOME or
// ~/.config; empty if none of them is set. named reports whether SLIPWAY_CONFIG names it, so that it must
// exist.
func Path(getenv func(string) string) (path string, named bool) {
	if path := getenv("SLIPWAY_CONFIG"); path != "" {
		return path, true
	}

	dir := getenv("XDG_CONFIG_HOME")
	if dir == "" && getenv("HOME") != "" {
		dir = filepath.Join(getenv("HOME"), ".config")
	}

	if dir == "" {
		return "", false
	}

	return filepath.Join(dir, "slipway", "config.yaml"), false
}

// File is a parsed configuration file. The zero File sets nothing.
type File struct {
	// Path of the file; empty if there is none.
	Path   string
	values map[string]entry // by the name of the setting
}

// entry is one field of the file.
type entry struct {
	value string
	at    yamltext.Position
}

// Parse parses the text of a configuration file. home replaces ~ in paths. Every field that is not valid
// is a finding with its line and column, and is not in the result.
func Parse(path string, text []byte, home string) (File, diag.Findings) {
	p := parser{file: File{Path: path, values: map[string]entry{}}, home: home}
	docs := yamltext.Split(text)
	if len(docs) > 1 {
		p.report(
			finding{message: "has several documents", hint: "keep one document"},
			yamltext.Position{Line: docs[1].FirstLine, Column: 1},
		)
	}

	for _, doc := range docs[:min(len(docs), 1)] {
		p.parse(doc)
	}

	return p.file, p.findings
}

// Value returns the value of a setting, and whether the file sets it.
func (f File) Value(name string) (string, bool) {
	e, ok := f.values[name]

	return e.value, ok
}

// Position returns where the file sets a setting.
func (f File) Position(name string) yamltext.Position { return f.values[name].at }

// parser collects the fields of a file, and what is wrong with them.
type parser struct {
	file     File
	home     string
	findings diag.Findings
}

// finding is what is wrong with one field.
type finding struct{ path, value, message, hint string }

func (p *parser) report(f finding, at yamltext.Position) {
	if f.path == "" {
		f.path = "configuration"
	}

	p.findings = append(p.findings, diag.Finding{
		Severity: diag.Error,
		Path:     f.path,
		Value:    f.value,
		Message:  f.message,
		Hint:     f.hint,
		File:     p.file.Path,
		Line:     at.Line,
		Column:   at.Column,
	})
}

func (p *parser) parse(doc yamltext.Document) {
	doc, problem := doc.Parse()
	if problem != nil {
		p.report(finding{message: problem.Message, hint: problem.Hint}, problem.At)
		return
	}

	fields, ok := doc.Fields()
	if !ok {
		p.report(
			finding{message: "is not a mapping of fields", hint: "write NAME: VALUE lines; the names are " + strings.Join(names(), ", ")},
			yamltext.Position{Line: doc.FirstLine, Column: 1},
		)

		return
	}

	for _, field := range fields {
		p.addField(field)
	}
}

// addField checks one field and keeps it.
func (p *parser) addField(field yamltext.Field) {
	i := slices.IndexFunc(Settings(), func(s Setting) bool { return s.Name == field.Name })
	if i < 0 {
		p.report(finding{path: field.Name, message: "is not a setting", hint: hintForUnknown(field.Name)}, field.At)
		return
	}

	setting := Settings()[i]
	if !field.IsScalar {
		p.report(finding{path: field.Name, message: "must be one value", hint: "write " + field.Name + ": VALUE"}, field.At)
		return
	}

	if field.Value == "" { // as in a template: unset
		return
	}

	if setting.check != nil {
		if message, hint := setting.check(field.Value); message != "" {
			p.report(finding{path: field.Name, value: field.Value, message: message, hint: hint}, field.ValueAt)
			return
		}
	}

	value := field.Value
	if rest, ok := strings.CutPrefix(value, "~/"); ok && setting.isPath && p.home != "" {
		value = filepath.Join(p.home, rest)
	}

	p.file.values[field.Name] = entry{value: value, at: field.At}
}

// hintForUnknown returns the setting that was probably meant.
func hintForUnknown(name string) string {
	if strings.Contains(strings.ToLower(name), "passphrase") {
		return "set SLIPWAY_STATE_PASSPHRASE: secrets are not read from this file"
	}

	if near := diag.Nearest(name, names()); near != "" {
		return "did you mean " + near + "?"
	}

	for _, s := range Settings() { // its flag or variable instead of its name
		if name == s.Flag || slices.Contains(s.Variables, name) {
			return "did you mean " + s.Name + "?"
		}
	}

	return "the settings are " + strings.Join(names(), ", ")
}

func checkStoreURL(value string) (message, hint string) {
	if _, err := store.ParseURL(value); err != nil {
		return "is not the URL of a state store", strings.Join(diag.Hints(err), "; ")
	}

	return "", ""
}

func checkClusterName(value string) (message, hint string) {
	if !regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`).MatchString(value) {
		return "is not the name of a cluster", "use lower-case letters, digits and dashes"
	}

	return "", ""
}

// CheckAccount returns an error with a hint if value is not the id of an AWS account.
func CheckAccount(value string) error {
	if message, hint := checkAccount(value); message != "" {
		return diag.WithHint(fmt.Errorf("state owner %q %s", value, message), hint)
	}

	return nil
}

func checkAccount(value string) (message, hint string) {
	if !regexp.MustCompile(`^[0-9]{12}$`).MatchString(value) {
		return "is not an AWS account", "write its 12 digits in quotes"
	}

	return "", ""
}

func checkRegion(value string) (message, hint string) {
	if regexp.MustCompile(`^[a-z]+(-[a-z]+)+-[0-9]+[a-z]$`).MatchString(value) {
		return "is an availability zone, not a region", "write " + value[:len(value)-1]
	}

	if !regexp.MustCompile(`^[a-z]+(-[a-z]+)+-[0-9]+$`).MatchString(value) {
		return "is not an AWS region", "write it as eu-central-1"
	}

	return "", ""
}

func checkOutput(value string) (message, hint string) {
	formats := []string{"table", "json", "yaml"}
	if slices.Contains(formats, value) {
		return "", ""
	}

	if near := diag.Nearest(value, formats); near != "" {
		return "is not an output format", "did you mean " + near + "?"
	}

	return "is not an output format", "use " + strings.Join(formats, ", ")
}
