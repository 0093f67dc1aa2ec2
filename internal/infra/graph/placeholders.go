// SPDX-License-Identifier: Apache-2.0

package graph

import "strings"

// What only the renderer of a template knows stands as a mark in the texts and documents of a graph. A graph that is
// applied directly holds none of them.
const (
	// StackNamePlaceholder stands for the name of the stack that a template makes.
	StackNamePlaceholder = "@@stack@@"

	signalsStart, signalsEnd = "@@signals ", "@@"
	versionStart             = "@@version "
)

// VersionedValue is a value that goes with a version of Kubernetes, which users of a template may choose.
type VersionedValue struct {
	// Version of Kubernetes, such as 1.36.3, and Key that tells the value from others of that version; without blanks.
	Version, Key string
	Value        string
}

// Placeholder stands for the value that Key has in the version that is chosen.
func (v VersionedValue) Placeholder() string {
	return versionStart + v.Version + " " + v.Key + " " + v.Value + signalsEnd
}

// FindVersioned finds the first mark of a [VersionedValue] in s, and what is before and after it; the zero Versioned if there is none.
func FindVersioned(s string) (v VersionedValue, before, after string) {
	before, rest, found := strings.Cut(s, versionStart)
	if !found {
		return VersionedValue{}, s, ""
	}

	mark, after, _ := strings.Cut(rest, signalsEnd)
	fields := strings.Fields(mark)
	if len(fields) != 3 {
		return VersionedValue{}, s, ""
	}

	return VersionedValue{fields[0], fields[1], fields[2]}, before, after
}

// SignalsPlaceholder stands for the names, separated by commas, of those resources of a template that a machine of the group at
// addr says to that it is well.
func SignalsPlaceholder(addr Addr) string { return signalsStart + string(addr) + signalsEnd }

// FindSignals finds the first mark of [SignalsPlaceholder] in s: whose it is, and what is before and after it.
func FindSignals(s string) (addr Addr, before, after string) {
	before, rest, found := strings.Cut(s, signalsStart)
	if !found {
		return "", s, ""
	}

	name, after, found := strings.Cut(rest, signalsEnd)
	if !found {
		return "", s, ""
	}

	return Addr(name), before, after
}
