// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/slipway-k8s/slipway/internal/cluster/inventory"
)

func newGetMachinesCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "machines [NAME]",
		Aliases: []string{"machine", "instances"},
		Short:   "List the machines of a cluster",
		Long: `List the machines of cluster NAME as EC2 has them, with the state of their nodes if the Kubernetes API answers. A machine
that was terminated less than an hour ago is listed too.

HEALTH is healthy, warning or failed by the last report of the machine's agent, "not ready" or "not joined". REVISION is the
node document that a machine has, DESIRED the one that it is to have; a running machine follows within a minute. -o wide shows
the state of the node, in DOCUMENT what it waits for or why it does not follow, which machines were launched from an older
launch template than their group has now, and the problem that a machine's agent reported last.`,
		Example: "  slipway get machines demo -o wide\n  slipway get machines demo --watch",
	}

	return newClusterGetCommand(a, cmd, func(name string) listFunc {
		return machineLister{a}.listLive(name, func(c inventory.Contents) []resourceList {
			return []resourceList{machineList(name, c.Machines, a.Now())}
		})
	})
}

func newGetNodesCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "nodes [NAME]",
		Aliases: []string{"node"},
		Short:   "List the Kubernetes nodes of a cluster",
		Long: `List the nodes of cluster NAME with their groups and machines. It needs no kubeconfig: slipway issues itself a certificate
for two hours.`,
		Example: "  slipway get nodes demo\n  slipway get nodes demo -o json",
	}

	return newClusterGetCommand(a, cmd, func(name string) listFunc {
		return func(ctx context.Context) ([]resourceList, error) {
			live, err := inventory.Open(ctx, a.newClusterEnv(), name)
			if err != nil {
				return nil, err
			}

			contents, err := live.Read(ctx)
			if err == nil {
				err = contents.NodesError
			}

			return []resourceList{nodeList(name, contents.Nodes, a.Now())}, err
		}
	})
}

func newGetAllCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "all [NAME]",
		Short: "List a cluster with its groups, machines and nodes",
		Long: `List cluster NAME, its groups, its machines and its nodes.

With -o yaml or -o json, print the manifests alone: the Cluster and its InstanceGroups, with which another state store can
create an equal cluster. They contain no secret: the new cluster gets keys and certificates of its own, and no data of etcd or
of volumes is copied. The pinned asset catalogue is not part of them; the new cluster gets the catalogue of this slipway, or that
of --assets.`,
		Example: "  slipway get all demo\n  slipway get all demo -o yaml | slipway create -f - --state s3://other --yes",
	}

	return newGetAllRunner(a, cmd)
}

// newGetAllRunner adds what 'slipway get all' does to its command. Documents are read from the state store alone.
func newGetAllRunner(a *app, cmd *cobra.Command) *cobra.Command {
	var documentsOnly bool
	cmd = newClusterGetCommand(a, cmd, func(name string) listFunc {
		if documentsOnly {
			return func(ctx context.Context) ([]resourceList, error) { return machineLister{a}.listManifests(ctx, name) }
		}

		return func(ctx context.Context) ([]resourceList, error) {
			lists, err := machineLister{a}.listManifests(ctx, name)
			if err != nil {
				return nil, err
			}

			live, err := machineLister{a}.listLive(name, func(c inventory.Contents) []resourceList {
				return []resourceList{machineList(name, c.Machines, a.Now()), nodeList(name, c.Nodes, a.Now())}
			})(ctx)

			return append(lists, live...), err
		}
	})

	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		format := cmd.Flag("output").Value.String()
		documentsOnly = format == formatYAML || format == formatJSON

		return run(cmd, args)
	}

	return cmd
}

// machineLister prints machines and nodes.
type machineLister struct{ *app }

// listManifests lists a cluster and its groups.
func (a machineLister) listManifests(ctx context.Context, name string) ([]resourceList, error) {
	clusters, err := a.loadClusterList(ctx, name)
	if err != nil {
		return nil, err
	}

	groups, err := a.loadGroupList(ctx, name)

	return append(clusters, groups), err
}

// listLive returns a function that reads the machines and nodes of a cluster. An unreachable Kubernetes API is a
// message, not an error.
func (a machineLister) listLive(name string, lists func(inventory.Contents) []resourceList) listFunc {
	var live *inventory.Live
	reported := ""

	return func(ctx context.Context) ([]resourceList, error) {
		if live == nil {
			opened, err := inventory.Open(ctx, a.newClusterEnv(), name)
			if err != nil {
				return nil, err
			}

			live = opened
		}

		contents, err := live.Read(ctx)
		if err != nil {
			return nil, err
		}

		if failure := contents.NodesError; failure != nil && failure.Error() != reported {
			reported = failure.Error()
			a.printMessage("nodes are not shown, because the Kubernetes API does not answer: %s", reported)
		}

		return lists(contents), nil
	}
}

func machineList(cluster string, machines []inventory.Machine, now time.Time) resourceList {
	list := resourceList{
		kind: "machine",
		header: []string{
			"MACHINE", "NODE", "GROUP", "SLOT", "STATE", "HEALTH", "VERSION", "REVISION", "DESIRED", "TYPE", "ZONE", "AGE",
		},
		wide:  []string{"NODE STATE", "ADDRESS", "PUBLIC ADDRESS", "IMAGE", "PURCHASE", "TEMPLATE", "DOCUMENT", "PROBLEM"},
		empty: "cluster " + cluster + " has no machines",
	}

	for _, m := range machines {
		list.items = append(list.items, machineItem(m, now))
	}

	return list
}

func machineItem(m inventory.Machine, now time.Time) resourceItem {
	purchase := "on-demand"
	if m.Spot {
		purchase = "spot"
	}

	template := m.TemplateVersion
	if m.Outdated {
		template += " (outdated)"
	}

	stable := []string{
		m.ID, m.Node, m.Group, m.Slot, m.State, m.Health, m.Version, shortRevision(m.Revision.Current),
		shortRevision(m.Revision.Desired), m.MachineType, m.Zone,
	}
	wide := []string{
		m.NodeState, m.PrivateAddress, m.PublicAddress, m.Image, purchase, template, describeRevision(m.Revision), m.Problem,
	}

	return resourceItem{
		name:      m.ID,
		cells:     append(dashIfEmpty(stable), formatAge(m.LaunchedAt, now)),
		wide:      dashIfEmpty(wide),
		document:  m,
		signature: fmt.Sprint(stable, wide),
	}
}

// shortRevision returns the beginning of the SHA-256 of a node document.
func shortRevision(sum string) string { return sum[:min(len(sum), 8)] }

// describeRevision tells how far a machine follows its node document.
func describeRevision(r inventory.Revision) string {
	text := r.State
	if len(r.Pending) > 0 {
		text += ": " + strings.Join(r.Pending, ", ")
	}

	if r.Cause != "" {
		text += ": " + r.Cause
	}

	return text
}

func nodeList(cluster string, nodes []inventory.Node, now time.Time) resourceList {
	list := resourceList{
		kind:   "node",
		header: []string{"NAME", "STATUS", "ROLE", "GROUP", "MACHINE", "VERSION", "AGE"},
		wide:   []string{"ZONE", "ADDRESS", "OS IMAGE", "KERNEL", "RUNTIME", "PROBLEM"},
		empty:  "cluster " + cluster + " has no nodes",
	}

	for _, n := range nodes {
		list.items = append(list.items, nodeItem(n, now))
	}

	return list
}

func nodeItem(n inventory.Node, now time.Time) resourceItem {
	status := n.State
	if n.Cordoned {
		status += ",SchedulingDisabled"
	}

	stable := []string{n.Name, status, n.Role, n.Group, n.Machine, n.Version}
	wide := []string{n.Zone, n.Address, n.OSImage, n.Kernel, n.Runtime, cmp.Or(n.Reason, n.Problem)}

	return resourceItem{
		name:      n.Name,
		cells:     append(dashIfEmpty(stable), formatAge(n.CreatedAt, now)),
		wide:      dashIfEmpty(wide),
		document:  n,
		signature: fmt.Sprint(stable, wide),
	}
}

// dashIfEmpty returns cells with a dash for each empty one, so that columns can be told apart.
func dashIfEmpty(cells []string) []string {
	out := make([]string, len(cells))
	for i, c := range cells {
		out[i] = cmp.Or(c, "-")
	}

	return out
}

// formatAge formats the time since then as kubectl does, such as 5m or 3d4h.
func formatAge(then, now time.Time) string {
	if then.IsZero() {
		return "-"
	}

	return duration.HumanDuration(now.Sub(then))
}
