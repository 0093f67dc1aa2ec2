// SPDX-License-Identifier: Apache-2.0

package graph

import "strings"

// What only the renderer of a template knows stands as a mark in the texts and documents of a graph. A graph that is
// applied directly holds none of them.
const (
	// StackName stands for the name of the stack that a template makes.
	StackName = "@@stack@@"

	signalsStart, signalsEnd = "@@signals ", "@@"
	versionStart             = "@@version "
)

// Versioned is a value that goes with a version of Kubernetes, which users of a template may choose.
type Versioned struct {
	// Version of Kubernetes, such as 1.36.3, and Key that tells the value from others of that version; without blanks.
	Version, Key string
	Value        string
}

// Mark stands for the value that Key has in the version that is chosen.
func (v Versioned) Mark() string {
	return versionStart + v.Version + " " + v.Key + " " + v.Value + signalsEnd
}

// VersionedIn finds the first mark of a [Versioned] in s, and what is before and after it; the zero Versioned if there is none.
func VersionedIn(s string) (v Versioned, before, after string) {
	before, rest, found := strings.Cut(s, versionStart)
	if !found {
		return Versioned{}, s, ""
	}
	mark, after, _ := strings.Cut(rest, signalsEnd)
	fields := strings.Fields(mark)
	if len(fields) != 3 {
		return Versioned{}, s, ""
	}
	return Versioned{fields[0], fields[1], fields[2]}, before, after
}

// Signals stands for the names, separated by commas, of those resources of a template that a machine of the group at
// addr says to that it is well.
func Signals(addr Addr) string { return signalsStart + string(addr) + signalsEnd }

// SignalsIn finds the first mark of [Signals] in s: whose it is, and what is before and after it.
func SignalsIn(s string) (addr Addr, before, after string) {
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
