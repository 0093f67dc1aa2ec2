// SPDX-License-Identifier: Apache-2.0

package graph

import "strings"

// What only the renderer of a template knows stands as a mark in the texts and documents of a graph. A graph that is
// applied directly holds none of them.
const (
	// StackName stands for the name of the stack that a template makes.
	StackName = "@@stack@@"

	signalsStart, signalsEnd = "@@signals ", "@@"
)

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
