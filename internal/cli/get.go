// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

func newGetCommand(a *app) *cobra.Command {
	return newGroupCommand(
		"get",
		"List clusters and instance groups of the state store",
		groupCluster,
		newGetClustersCommand(a),
		newGetGroupsCommand(a),
	)
}

func newGetClustersCommand(a *app) *cobra.Command {
	var name, format string
	cmd := &cobra.Command{
		Use:     "clusters [NAME]",
		Aliases: []string{"cluster"},
		Short:   "List clusters",
		Long:    "List the clusters of the state store, or one of them. Makes no call to AWS except to an S3 state store." + exitStatusHelp(),
		Example: "  slipway get clusters\n  slipway get cluster demo -o yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				name = args[0]
			}

			return a.getClusters(cmd.Context(), name, format)
		},
	}

	addNameFlag(cmd, &name)
	addFormatFlag(cmd, &format)

	return cmd
}

func (a *app) getClusters(ctx context.Context, name, format string) error {
	s, _, err := a.stores().State(ctx)
	if err != nil {
		return err
	}

	names := []string{name}
	if name == "" {
		if names, err = clusterstate.ListClusters(ctx, s); err != nil {
			return err
		}
	}

	var sets []manifest.Set

	for _, n := range names {
		set, err := clusterstate.LoadManifests(ctx, s, n)
		if err != nil {
			return err
		}

		sets = append(sets, set)
	}

	if format != formatTable {
		var clusters []any
		for _, set := range sets {
			clusters = append(clusters, set.Cluster)
		}

		return a.printDocuments(format, clusters, name != "")
	}

	if len(sets) == 0 {
		a.printMessage("there are no clusters in %s", s.URL())
		return nil
	}

	var rows [][]string
	for _, set := range sets {
		rows = append(rows, clusterRow(set))
	}

	a.printTable([]string{"NAME", "KUBERNETES", "REGION", "ZONES", "CONTROL PLANE", "WORKERS"}, rows)

	return nil
}

func clusterRow(set manifest.Set) []string {
	spec := set.Cluster.Spec
	var zones []string
	for _, sub := range spec.Networking.Subnets {
		letter := strings.TrimPrefix(sub.Zone, spec.CloudProvider.AWS.Region)
		if !slices.Contains(zones, letter) {
			zones = append(zones, letter)
		}
	}

	workers := 0
	for _, g := range set.Workers() {
		workers += g.Spec.MinMachines()
	}

	return []string{
		set.Cluster.Metadata.Name, spec.KubernetesVersion, spec.CloudProvider.AWS.Region, strings.Join(zones, ","),
		strconv.Itoa(set.ControlPlane().Spec.MinMachines()), strconv.Itoa(workers),
	}
}

func newGetGroupsCommand(a *app) *cobra.Command {
	var name, format string
	cmd := &cobra.Command{
		Use:     "groups [NAME]",
		Aliases: []string{"group", "instancegroups", "ig"},
		Short:   "List the instance groups of a cluster",
		Long:    "List the instance groups of cluster NAME. Makes no call to AWS except to an S3 state store." + exitStatusHelp(),
		Example: "  slipway get groups demo\n  slipway get groups --name demo -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := a.clusterName(args, name)
			if err != nil {
				return err
			}

			return a.getGroups(cmd.Context(), name, format)
		},
	}

	addNameFlag(cmd, &name)
	addFormatFlag(cmd, &format)

	return cmd
}

func (a *app) getGroups(ctx context.Context, name, format string) error {
	s, _, err := a.stores().State(ctx)
	if err != nil {
		return err
	}

	set, err := clusterstate.LoadManifests(ctx, s, name)
	if err != nil {
		return err
	}

	if format != formatTable {
		var groups []any
		for _, g := range set.Groups {
			groups = append(groups, g)
		}

		return a.printDocuments(format, groups, false)
	}

	var rows [][]string
	for _, g := range set.Groups {
		rows = append(rows, groupRow(g))
	}

	a.printTable([]string{"NAME", "ROLE", "MACHINE TYPE", "MIN", "MAX", "SUBNETS"}, rows)

	return nil
}

func groupRow(g v1alpha1.InstanceGroup) []string {
	return []string{
		g.Metadata.Name, string(g.Spec.Role), g.Spec.MachineType,
		strconv.Itoa(g.Spec.MinMachines()), strconv.Itoa(g.Spec.MaxMachines()), strings.Join(g.Spec.Subnets, ","),
	}
}

// printSet prints all documents of a cluster.
func (a *app) printSet(format string, set manifest.Set) error {
	docs := []any{set.Cluster}
	for _, g := range set.Groups {
		docs = append(docs, g)
	}

	return a.printDocuments(format, docs, false)
}

// documentList is a List of documents in JSON, as in kubectl.
type documentList struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Items      []any  `json:"items"`
}

// printDocuments prints documents: in YAML as a stream, in JSON as a List. A single named document is
// printed as such.
func (a *app) printDocuments(
	format string,
	docs []any,
	single bool,
) error {
	if format == formatJSON {
		if single && len(docs) == 1 {
			return a.printValue(format, docs[0])
		}

		return a.printValue(
			format,
			documentList{APIVersion: "v1", Kind: "List", Items: append([]any{}, docs...)},
		)
	}

	for i, doc := range docs {
		if i > 0 {
			fmt.Fprintln(a.Stdout, "---")
		}

		if err := a.printValue(format, doc); err != nil {
			return err
		}
	}

	return nil
}
