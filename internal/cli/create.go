// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/manifests"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

const createLong = `Write the manifests, certificate authorities and pinned asset catalogue of a new cluster into the state store. Nothing
is made in AWS: see 'slipway plan' and 'slipway apply'.

Everything is checked before anything is written, and every wrong field is reported at once. Images that the catalogue names by
tag get the digest that the tag has in the registry now; a catalogue with digests (--assets) needs no registry.`

type createOptions struct {
	file, format string
	dryRun       bool
}

func newCreateCommand(a *app) *cobra.Command {
	var o createOptions
	cmd := newGroupCommand(
		"create",
		"Create a cluster in the state store",
		groupCluster,
		newCreateClusterCommand(a),
	)

	cmd.Long = createLong + exitStatusHelp()
	cmd.Example = "  slipway create -f examples/ha.yaml --yes\n  slipway create cluster demo --zones us-east-1a,us-east-1b,us-east-1c --yes"
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.file == "" {
			return cmd.Help()
		}

		set, findings, err := a.readManifestFile(o.file)
		if err != nil {
			return err
		}

		return a.runCreate(cmd.Context(), set, findings, o)
	}

	cmd.Flags().StringVarP(&o.file, "filename", "f", "", "manifest file, or - for stdin")
	addCreateFlags(a, cmd, &o)

	return cmd
}

func addCreateFlags(a *app, cmd *cobra.Command, o *createOptions) {
	cmd.Flags().BoolVar(
		&o.dryRun,
		"dry-run",
		false,
		"print the manifests with all defaults, write nothing; needs no state store",
	)

	addFormatFlag(cmd, &o.format, formatYAML, formatJSON)
	a.addYesFlag(cmd)
	a.addLockFlag(cmd)
	a.addAssetsFlag(cmd)
}

func newCreateClusterCommand(a *app) *cobra.Command {
	var o createOptions
	var n manifest.NewSetOptions
	var zones []string
	var name string
	cmd := &cobra.Command{
		Use:   "cluster [NAME]",
		Short: "Create a cluster in the state store",
		Long: createLong + `

The cluster gets a public and a private subnet in each zone, a group of control-plane machines and one of workers. With
--dry-run the manifests are printed, to be changed and then given to 'slipway create -f'. On a terminal, slipway asks for
the name, zones, sizes and access that are not given, and prints the command that needs no questions.` + exitStatusHelp(),
		Example: `  slipway create cluster
  slipway create cluster demo --zones us-east-1a,us-east-1b,us-east-1c --dry-run -o yaml
  slipway create cluster demo --zones us-east-1a,us-east-1b,us-east-1c --worker-count 5 --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			q := createQuestions{app: a, cmd: cmd, zones: zones}
			q.name, _ = a.clusterName(args, name) // without one, the question or the error below asks for it
			q.build = func(name string, zones []string) (manifest.Set, diag.Findings) {
				return manifest.NewSet(name, zones, n)
			}

			if q.name == "" || len(zones) == 0 {
				if !isTerminal(a.Stdin) {
					return errNotGiven(cmd, q.name, zones)
				}

				if err := q.askAll(cmd.Context()); err != nil {
					return err
				}
			}

			set, findings := q.build(q.name, q.zones)

			return a.runCreate(cmd.Context(), set, findings, o)
		},
	}

	addNameFlag(cmd, &name)
	addCreateFlags(a, cmd, &o)
	cmd.Flags().StringSliceVar(
		&zones,
		"zones",
		nil,
		"availability zones, such as us-east-1a,us-east-1b,us-east-1c",
	)

	addShapeFlags(cmd, &n)

	return cmd
}

// addShapeFlags adds the flags for the size and the network of a new cluster.
func addShapeFlags(cmd *cobra.Command, n *manifest.NewSetOptions) {
	flags := cmd.Flags()
	flags.IntVar(
		&n.ControlPlaneCount,
		"control-plane-count",
		0,
		"control-plane machines: 1, 3 or 5 (default 3)",
	)

	flags.IntVar(&n.WorkerCount, "worker-count", 0, "workers (default 2)")
	flags.StringVar(
		&n.ControlPlaneSize,
		"control-plane-size",
		"",
		"instance type of control-plane machines (default t3.large)",
	)

	flags.StringVar(&n.NodeSize, "node-size", "", "instance type of workers (default t3.large)")
	flags.StringVar(
		&n.KubernetesVersion,
		"kubernetes-version",
		"",
		"Kubernetes version, such as 1.36.3, or 1.36 for its newest patch; see 'slipway get versions' (default "+
			manifest.DefaultKubernetesVersion+")",
	)

	flags.StringVar(&n.NetworkCIDR, "network-cidr", "", "CIDR range of the VPC (default 10.80.0.0/16)")
	flags.StringVar(
		&n.APILoadBalancerType,
		"api-loadbalancer-type",
		"",
		"Public or Internal (default Public)",
	)

	flags.StringSliceVar(
		&n.APIAccess,
		"api-access",
		nil,
		"CIDR ranges that reach the Kubernetes API (default 0.0.0.0/0 if it has a public address)",
	)

	flags.StringVar(&n.NATGateways, "nat-gateways", "", "PerZone, Single or None (default PerZone)")
	flags.StringVar(
		&n.ConfigStoreBase,
		"config-base",
		"",
		"s3:// store that machines read from (default: the state store)",
	)
}

// readManifestFile reads and parses a manifest file, or stdin.
func (a *app) readManifestFile(file string) (manifest.Set, diag.Findings, error) {
	source := manifest.Source{File: file}
	var err error
	if file == "-" {
		source.File = "stdin"
		source.Text, err = io.ReadAll(a.Stdin)
	} else {
		source.Text, err = os.ReadFile(file)
	}

	if err != nil {
		return manifest.Set{}, nil, fmt.Errorf("read the manifest: %w", err)
	}

	a.source = source
	set, findings := manifest.Parse(source.Text)

	return set, findings, nil
}

// runCreate sets the defaults, checks the manifests together with the findings of the parser, and writes or
// prints them.
func (a *app) runCreate(
	ctx context.Context,
	set manifest.Set,
	findings diag.Findings,
	o createOptions,
) error {
	catalog, err := manifests.LoadCatalog(ctx, a.catalogSource())
	if err != nil {
		return err
	}

	set, findings = manifests.Complete(set, findings, catalog)
	if o.dryRun {
		if err := findings.Err(); err != nil {
			return err
		}

		a.printFindings(findings)
		return a.printSet(o.format, set)
	}

	s, sealer, err := a.stores().State(ctx)
	if findings.Err() != nil && err != nil {
		findings.Errorf(
			"--state",
			a.flagOrEnv(a.stateFlag, "SLIPWAY_STATE"),
			strings.Join(errorHints(err), "; "),
			"%s",
			err,
		)
	}

	if err := cmp.Or(findings.Err(), err); err != nil {
		return err
	}

	created := manifests.NewCluster{Store: s, Sealer: sealer, Set: set, Catalog: catalog}
	if !a.quiet {
		findings = append(findings, created.CheckMachineStore(ctx)...)
	}

	a.printFindings(findings)

	return a.confirmAndCreate(ctx, created)
}

// warnOfOpenAPI warns if everybody reaches the API of a cluster, and did not before. Its clients still need a
// certificate or a token.
func (a *app) warnOfOpenAPI(before, after manifest.Set) {
	former := openRanges(before)
	for _, ranges := range openRanges(after) {
		if !slices.Contains(former, ranges) {
			a.printMessage(
				"warning: the whole internet (%s) reaches the Kubernetes API: restrict it with --api-access, or spec.api.access",
				ranges,
			)
		}
	}
}

// openRanges returns the ranges of the whole internet from which the API has a public address.
func openRanges(set manifest.Set) []string {
	api := set.Cluster.Spec.API
	if api.LoadBalancer.Type == manifest.LoadBalancerInternal {
		return nil
	}

	return manifest.OpenRanges(api.Access)
}

// confirmAndCreate prints the objects of a new cluster, asks, and writes them.
func (a *app) confirmAndCreate(ctx context.Context, created manifests.NewCluster) error {
	name := created.Name()
	if err := created.RefuseExisting(ctx); err != nil {
		return err
	}

	if err := store.CheckKey(created.Sealer); err != nil {
		return err
	}

	var err error
	if created.Catalog, err = manifests.PinImages(ctx, a.newClusterEnv(), created.Catalog, created.Set); err != nil {
		return err
	}

	a.printMessage("+ %s (asset catalogue)", manifest.AssetsKey(name))
	a.printMessage("+ %s, and %d encrypted keys", pki.CertsObjectKey(name), len(pki.KeyNames()))

	for _, g := range created.Set.Groups {
		a.printMessage(
			"+ %s (%s, %d × %s)",
			manifest.GroupKey(name, g.Metadata.Name),
			g.Spec.Role,
			g.Spec.MinMachines(),
			g.Spec.MachineType,
		)
	}

	a.printMessage(
		"+ %s (Kubernetes %s in %s)",
		manifest.ClusterKey(name),
		created.Set.Cluster.Spec.KubernetesVersion,
		created.Set.Cluster.Spec.CloudProvider.AWS.Region,
	)
	a.warnOfOpenAPI(manifest.Set{}, created.Set)
	if err := a.confirm("Write cluster " + name + " into " + created.Store.URL() + "?"); err != nil {
		return err
	}

	env, err := a.newLockingEnv()
	if err != nil {
		return err
	}

	if err := created.Write(ctx, env); err != nil {
		return err
	}

	a.printMessage("cluster %s was written to the state store; create it in AWS with: slipway apply %s --yes", name, name)

	return nil
}
