// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"maps"
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
		"List clusters, instance groups, machines and nodes",
		groupCluster,
		newGetClustersCommand(a),
		newGetGroupsCommand(a),
		newGetMachinesCommand(a),
		newGetNodesCommand(a),
		newGetAllCommand(a),
		newGetVersionsCommand(a),
	)
}

const getFormatsHelp = `

FORMATS
  table  the most important columns (default)
  wide   more columns
  json, yaml
  name   one KIND/NAME a line, for scripts`

const watchHelp = `

With --watch, print the list, then every 2 s what has changed, until interrupted.`

// addGetFlags adds the flags of every get command.
func addGetFlags(cmd *cobra.Command, o *getOptions) {
	addNameFlag(cmd, &o.name)
	addFormatFlag(cmd, &o.format, formatTable, formatWide, formatJSON, formatYAML, formatName)
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "print changes until interrupted")
}

// newClusterGetCommand returns a get command for one kind of resources of a cluster. list is made for the
// cluster's name.
func newClusterGetCommand(a *app, cmd *cobra.Command, list func(name string) listFunc) *cobra.Command {
	var o getOptions
	cmd.Long += watchHelp + getFormatsHelp + exitStatusHelp()
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, err := a.clusterName(args, o.name)
		if err != nil {
			return err
		}

		return lister{a}.runGet(cmd.Context(), o, list(name))
	}

	addGetFlags(cmd, &o)

	return cmd
}

func newGetClustersCommand(a *app) *cobra.Command {
	var o getOptions
	cmd := &cobra.Command{
		Use:     "clusters [NAME]",
		Aliases: []string{"cluster"},
		Short:   "List clusters",
		Long: "List the clusters of the state store, or one of them. Makes no call to AWS except to an S3 state store." +
			watchHelp + getFormatsHelp + exitStatusHelp(),
		Example: "  slipway get clusters -o wide\n  slipway get cluster demo -o yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.name = args[0]
			}

			return lister{a}.runGet(cmd.Context(), o, func(ctx context.Context) ([]resourceList, error) {
				return a.loadClusterList(ctx, o.name)
			})
		},
	}

	addGetFlags(cmd, &o)

	return cmd
}

// loadClusterList lists all clusters, or the one of this name.
func (a *app) loadClusterList(ctx context.Context, name string) ([]resourceList, error) {
	s, _, err := a.stores().State(ctx)
	if err != nil {
		return nil, err
	}

	names := []string{name}
	if name == "" {
		if names, err = clusterstate.ListClusters(ctx, s); err != nil {
			return nil, err
		}
	}

	list := newClusterList()
	list.empty = "there are no clusters in " + s.URL()

	for _, n := range names {
		set, err := clusterstate.LoadManifests(ctx, s, n)
		if err != nil {
			return nil, err
		}

		owner, _, err := clusterstate.ReadOwnership(ctx, s, n)
		if err != nil {
			return nil, err
		}

		list.items = append(list.items, clusterItem(set, owner.ID))
	}

	return []resourceList{list}, nil
}

func newClusterList() resourceList {
	return resourceList{
		kind:   "cluster",
		header: []string{"NAME", "KUBERNETES", "REGION", "ZONES", "CONTROL PLANE", "WORKERS"},
		wide:   []string{"API", "NETWORK", "PODS", "SERVICES", "ID"},
	}
}

func clusterItem(set manifest.Set, id string) resourceItem {
	spec := set.Cluster.Spec

	return resourceItem{
		name:     set.Cluster.Metadata.Name,
		cells:    clusterRow(set),
		document: set.Cluster,
		wide: []string{
			spec.API.LoadBalancer.Type,
			cmp.Or(spec.Networking.NetworkID, spec.Networking.NetworkCIDR),
			spec.Networking.PodCIDR,
			spec.Networking.ServiceClusterIPRange,
			id,
		},
	}
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
	var o getOptions
	cmd := &cobra.Command{
		Use:     "groups [NAME | GROUP]",
		Aliases: []string{"group", "instancegroups", "ig"},
		Short:   "List the instance groups of a cluster",
		Long: "List the instance groups of cluster NAME, or with --name or SLIPWAY_CLUSTER that one of its groups. Makes no " +
			"call to AWS\nexcept to an S3 state store." + watchHelp + getFormatsHelp + exitStatusHelp(),
		Example: "  slipway get groups demo\n  slipway get groups --name demo -o json\n  slipway get group workers --name demo -o yaml",
	}

	addGetFlags(cmd, &o)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		name, group, err := groupLister{a}.chooseNames(cmd.Context(), args, o.name)
		if err != nil {
			return err
		}

		return lister{a}.runGet(cmd.Context(), o, func(ctx context.Context) ([]resourceList, error) {
			list, err := groupLister{a}.load(ctx, name, group)

			return []resourceList{list}, err
		})
	}

	return cmd
}

// groupLister lists instance groups.
type groupLister struct{ *app }

// chooseNames returns the cluster whose groups are listed, and the group if only one is. The argument is a group if
// --name gives the cluster, or if it is not a cluster and SLIPWAY_CLUSTER gives one.
func (a groupLister) chooseNames(ctx context.Context, args []string, flag string) (cluster, group string, err error) {
	if len(args) == 0 || args[0] == flag {
		cluster, err = a.clusterName(nil, flag)
		return cluster, "", err
	}

	if flag != "" {
		return flag, args[0], nil
	}

	byDefault := a.flagOrEnv("", "SLIPWAY_CLUSTER")
	if byDefault == "" || byDefault == args[0] {
		return args[0], "", nil
	}

	s, _, err := a.stores().State(ctx)
	if err != nil {
		return "", "", err
	}

	clusters, err := clusterstate.ListClusters(ctx, s)
	if err != nil || slices.Contains(clusters, args[0]) {
		return args[0], "", err
	}

	groups, err := clusterstate.ListGroups(ctx, s, byDefault)
	if err != nil || !slices.Contains(groups, args[0]) {
		return args[0], "", err
	}

	return byDefault, args[0], nil
}

// load lists the groups of a cluster, or the one of this name.
func (a groupLister) load(ctx context.Context, cluster, group string) (resourceList, error) {
	list, err := a.loadGroupList(ctx, cluster)
	if err != nil || group == "" {
		return list, err
	}

	list.items = slices.DeleteFunc(list.items, func(i resourceItem) bool { return i.name != group })
	if len(list.items) > 0 {
		return list, nil
	}

	s, _, err := a.stores().State(ctx)
	if err != nil {
		return list, err
	}

	return list, clusterstate.NewGroupNotFoundError(ctx, s, cluster, group)
}

// loadGroupList lists the groups of a cluster.
func (a *app) loadGroupList(ctx context.Context, name string) (resourceList, error) {
	s, _, err := a.stores().State(ctx)
	if err != nil {
		return resourceList{}, err
	}

	set, err := clusterstate.LoadManifests(ctx, s, name)
	if err != nil {
		return resourceList{}, err
	}

	return groupList(set), nil
}

func groupList(set manifest.Set) resourceList {
	list := resourceList{
		kind:   "group",
		header: []string{"NAME", "ROLE", "MACHINE TYPE", "MIN", "MAX", "SUBNETS"},
		wide:   []string{"IMAGE", "ROOT VOLUME", "LABELS", "TAINTS"},
	}

	for _, g := range set.Groups {
		list.items = append(list.items, resourceItem{
			name:     g.Metadata.Name,
			cells:    groupRow(g),
			document: g,
			wide: []string{
				g.Spec.Image,
				fmt.Sprintf("%s %d GiB", g.Spec.RootVolume.Type, g.Spec.RootVolume.Size),
				joinLabels(g.Spec.NodeLabels),
				strings.Join(g.Spec.Taints, ","),
			},
		})
	}

	return list
}

// joinLabels returns labels as KEY=VALUE, sorted.
func joinLabels(labels map[string]string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, k+"="+labels[k])
	}

	return strings.Join(out, ",")
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
