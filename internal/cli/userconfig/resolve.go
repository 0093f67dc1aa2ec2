// SPDX-License-Identifier: Apache-2.0

package userconfig

import "fmt"

// Resolved is the value of a setting and what sets it.
type Resolved struct {
	// Name of the setting.
	Name string `json:"name"`
	// Value that commands use; empty if nothing sets it.
	Value string `json:"value"`
	// Origin is what sets it: a flag, a variable, a place in the file, or the default.
	Origin string `json:"origin"`
	// Flag and Variable are how to set it, for one command and for a shell.
	Flag string `json:"flag"`
	// Variable is the first of the setting's variables.
	Variable string `json:"variable"`
}

// Inputs are the sources of values, besides the file.
type Inputs struct {
	// Flag returns the value of a flag, and whether it was given.
	Flag func(name string) (string, bool)
	// Getenv returns the value of an environment variable.
	Getenv func(string) string
}

// Resolve returns all settings with their values and origins.
func Resolve(file File, in Inputs) []Resolved {
	var out []Resolved
	for _, s := range Settings() {
		out = append(out, s.resolve(file, in))
	}

	return out
}

// resolve returns the value of one setting: of its flag, else of a variable, else of the file.
func (s Setting) resolve(file File, in Inputs) Resolved {
	r := Resolved{
		Name:     s.Name,
		Origin:   "default",
		Flag:     "--" + s.Flag,
		Variable: s.Variables[0],
	}
	if s.Default != "" {
		r.Origin = "default: " + s.Default
	}

	if value, given := in.Flag(s.Flag); given {
		r.Value = value
		r.Origin = "flag --" + s.Flag

		return r
	}

	for _, variable := range s.Variables {
		if value := in.Getenv(variable); value != "" {
			r.Value = value
			r.Origin = "variable " + variable

			return r
		}
	}

	// A profile overrides keys in the environment, and the environment goes before the file.
	if s.Name == "profile" && in.Getenv("AWS_ACCESS_KEY_ID") != "" {
		r.Origin = "none: AWS_ACCESS_KEY_ID is set"
		return r
	}

	if value, ok := file.Value(s.Name); ok {
		r.Value = value
		at := file.Position(s.Name)
		r.Origin = fmt.Sprintf("%s:%d:%d", file.Path, at.Line, at.Column)
	}

	return r
}

// Lookup returns the value of the setting whose first variable is variable, without flags: of a variable,
// else of the file. It returns "" for a variable of no setting.
func Lookup(file File, variable string, getenv func(string) string) string {
	for _, s := range Settings() {
		if s.Variables[0] == variable {
			return s.resolve(file, Inputs{
				Flag:   func(string) (string, bool) { return "", false },
				Getenv: getenv,
			}).Value
		}
	}

	return ""
}
