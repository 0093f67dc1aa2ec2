// SPDX-License-Identifier: Apache-2.0

package supportbundle

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster/inventory"
	"github.com/slipway-k8s/slipway/internal/cluster/logs"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// Scope is what a bundle covers.
type Scope struct {
	// Machines of the cluster.
	Machines []inventory.Machine
	// MaxMachines limits the machines whose consoles and journals are read. Zero: all.
	MaxMachines int
	// Since is the age of the oldest lines of journals and pods' logs; zero: all.
	Since time.Duration
}

// The last lines of a journal and of a pod's log that are collected.
const maxLogLines = 5000

// SelectMachines returns the machines that are looked into, and a note on those that are left out: the control plane
// first, then machines whose nodes are not ready, then the others.
func SelectMachines(scope Scope) ([]inventory.Machine, string) {
	rank := func(m inventory.Machine) int {
		switch {
		case m.Role == inventory.RoleControlPlane:
			return 0
		case m.NodeState != inventory.NodeReady:
			return 1
		default:
			return 2
		}
	}

	all := slices.Clone(scope.Machines)
	slices.SortStableFunc(all, func(a, b inventory.Machine) int { return rank(a) - rank(b) })
	if scope.MaxMachines <= 0 || len(all) <= scope.MaxMachines {
		return all, ""
	}

	note := fmt.Sprintf(
		"Consoles and journals of %d of %d machines were collected: the control plane, machines without a ready node, "+
			"and some others. --max-machines sets the number.",
		scope.MaxMachines,
		len(all),
	)

	return all[:scope.MaxMachines], note
}

// machineSources returns the sources of one machine: its console always, its journal if its kubelet can be asked.
func machineSources(m inventory.Machine, reader logs.Reader, since time.Duration) []Source {
	dir := "machines/" + m.ID + "/"
	console := func(ctx context.Context) ([]byte, error) { return reader.ReadConsole(ctx, m) }
	out := []Source{
		{
			Path:  dir + "console.txt",
			Title: "serial console of " + describeMachine(m),
			Read:  func(ctx context.Context) (any, error) { return console(ctx) },
		},
		{
			Path:  dir + "console-report.json",
			Title: "newest report of the agent on the console of " + m.ID,
			Read: func(ctx context.Context) (any, error) {
				text, err := console(ctx)
				if err != nil {
					return nil, err
				}

				r, ok := report.ParseConsole(text)
				if !ok {
					return "the console has no report: the agent writes one only while the API does not answer\n", nil
				}

				return r, nil
			},
		},
	}

	if m.NodeState != inventory.NodeReady || reader.Client == nil {
		return out
	}

	for _, c := range logs.Components() {
		for _, unit := range c.Units {
			if unit == "etcd" && m.Role != inventory.RoleControlPlane {
				continue
			}

			out = append(out, Source{
				Path:  dir + "journal-" + unit + ".txt",
				Title: "journal of " + unit + " on " + describeMachine(m),
				Read: func(ctx context.Context) (any, error) {
					opt := logs.Options{Tail: maxLogLines, Since: since}
					lines, err := reader.ReadJournal(ctx, m, []string{unit}, opt)

					return strings.Join(lines, "\n") + "\n", err
				},
			})
		}
	}

	return out
}

func describeMachine(m inventory.Machine) string {
	if m.Slot != "" {
		return m.ID + " (" + m.Name() + ")"
	}

	return m.ID + " (" + m.Group + ")"
}

// dropUserData replaces what a manifest runs on machines at their first boot, which may contain anything.
func dropUserData(document any) (any, error) {
	tree, err := toTree(document)
	if err != nil {
		return nil, err
	}

	fields, _ := tree.(map[string]any)
	spec, _ := fields["spec"].(map[string]any)
	parts, _ := spec["additionalUserData"].([]any)

	for _, p := range parts {
		part, _ := p.(map[string]any)
		if text, ok := part["content"].(string); ok {
			part["content"] = fmt.Sprintf("%s (%d bytes of user data)", redacted, len(text))
		}
	}

	return tree, nil
}

// parseJSON returns an object of the state store as a tree, so that names of fields are known when it is redacted.
func parseJSON(body []byte) (any, error) {
	return toTree(json.RawMessage(body))
}
