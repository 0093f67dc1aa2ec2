// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// FindMachine returns the machine that an operator means by name: an instance id, the name of a node (whole,
// or up to its first dot), an address, a control-plane slot such as control-plane-a, or a group with one
// machine. Machines that are gone are found by their id only.
func FindMachine(machines []Machine, name string) (Machine, error) {
	var found []Machine
	for _, m := range machines {
		if m.ID == name {
			return m, nil
		}

		if !m.IsGone() && m.isCalled(name) {
			found = append(found, m)
		}
	}

	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return Machine{}, newUnknownMachineError(machines, name)
	default:
		return Machine{}, newAmbiguousMachineError(found, name)
	}
}

// isCalled reports whether name is one of the machine's names besides its id.
func (m Machine) isCalled(name string) bool {
	short, _, _ := strings.Cut(m.Node, ".")

	return name != "" && slices.Contains(
		[]string{m.Node, short, m.PrivateAddress, m.PublicAddress, m.Name(), m.Group},
		name,
	)
}

func newUnknownMachineError(machines []Machine, name string) error {
	var known []string
	for _, m := range machines {
		if !m.IsGone() {
			known = append(known, m.ID, m.Name(), m.Node, m.Group)
		}
	}

	hint := "list them with: slipway get machines"
	if near := diag.Nearest(name, known); near != "" {
		hint = "did you mean " + near + "? List all with: slipway get machines"
	}

	if len(known) == 0 {
		hint = "the cluster has no machines; create them with: slipway apply"
	}

	return diag.WithHint(fmt.Errorf("the cluster has no machine %q", name), hint)
}

func newAmbiguousMachineError(found []Machine, name string) error {
	var ids []string
	for _, m := range found {
		ids = append(ids, m.ID)
	}

	slices.Sort(ids)

	return diag.WithHint(
		fmt.Errorf("%q is the name of %d machines", name, len(found)),
		"use one of "+strings.Join(ids, ", "),
	)
}
