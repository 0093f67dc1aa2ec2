// SPDX-License-Identifier: Apache-2.0

package graph

import "strings"

// Placeholders in the texts and documents of a graph stand for values that only the renderer of a template
// knows. A graph that is applied directly contains none of them.
const (
	// StackNamePlaceholder stands for the name of the CloudFormation stack.
	StackNamePlaceholder = "@@stack@@"

	signalsStart, signalsEnd = "@@signals ", "@@"
	versionStart             = "@@version "
)

// VersionedValue is a value that depends on the Kubernetes version, which the user of a template can choose.
// Its fields contain no blanks.
type VersionedValue struct {
	// Version is the Kubernetes version, such as 1.36.3.
	Version string
	// Key distinguishes the values of one version: the name of an instance group.
	Key string
	// Value is the end of the name of a node document, and its hash.
	Value string
}

// Placeholder returns the placeholder for the value of v.Key in the Kubernetes version that the user chooses.
func (v VersionedValue) Placeholder() string {
	return versionStart + v.Version + " " + v.Key + " " + v.Value + signalsEnd
}

// FindVersioned returns the first placeholder of a [VersionedValue] in s and the text before and after it;
// the zero value and all of s as before if there is none.
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

	return VersionedValue{Version: fields[0], Key: fields[1], Value: fields[2]}, before, after
}

// SignalsPlaceholder returns the placeholder for the logical ids, separated by commas, of the template's
// resources that a machine of the group at addr signals when it is healthy.
func SignalsPlaceholder(addr Addr) string { return signalsStart + string(addr) + signalsEnd }

// FindSignals returns the address in the first [SignalsPlaceholder] of s and the text before and after it; an
// empty address and all of s as before if there is none.
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
