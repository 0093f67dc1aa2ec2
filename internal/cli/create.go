// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

const createLong = `Write the manifests, certificate authorities and pinned asset catalogue of a new cluster into the state store. Nothing
is made in AWS: see 'slipway plan' and 'slipway apply'.

Everything is checked before anything is written, and every wrong field is reported at once.`

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
--dry-run the manifests are printed, to be changed and then given to 'slipway create -f'.` + exitStatusHelp(),
		Example: `  slipway create cluster demo --zones us-east-1a,us-east-1b,us-east-1c --dry-run -o yaml
  slipway create cluster demo --zones us-east-1a,us-east-1b,us-east-1c --worker-count 5 --yes`,
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := a.clusterName(args, name)
			if err != nil {
				return err
			}

			set, findings := manifest.NewSet(name, zones, n)

			return a.runCreate(cmd.Context(), set, findings, o)
		},
	}

	addNameFlag(cmd, &name)
	addCreateFlags(a, cmd, &o)
	flags := cmd.Flags()
	flags.StringSliceVar(&zones, "zones", nil, "availability zones, such as us-east-1a,us-east-1b,us-east-1c")
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
		"Kubernetes version (default "+manifest.DefaultKubernetesVersion+")",
	)

	flags.StringVar(&n.NetworkCIDR, "network-cidr", "", "CIDR range of the VPC (default 10.80.0.0/16)")
	flags.StringVar(
		&n.APILoadBalancerType,
		"api-loadbalancer-type",
		"",
		"Public or Internal (default Public)",
	)

	flags.StringVar(&n.NATGateways, "nat-gateways", "", "PerZone, Single or None (default PerZone)")
	flags.StringVar(
		&n.ConfigStoreBase,
		"config-base",
		"",
		"s3:// store that machines read from (default: the state store)",
	)

	return cmd
}

// readManifestFile reads and parses a manifest file, or stdin.
func (a *app) readManifestFile(file string) (manifest.Set, diag.Findings, error) {
	var text []byte
	var err error
	if file == "-" {
		text, err = io.ReadAll(a.Stdin)
	} else {
		text, err = os.ReadFile(file)
	}

	if err != nil {
		return manifest.Set{}, nil, fmt.Errorf("read the manifest: %w", err)
	}

	set, findings := manifest.Parse(text)

	return set, findings, nil
}

// runCreate completes and checks the set with all that was found before, then writes or prints it.
func (a *app) runCreate(
	ctx context.Context,
	set manifest.Set,
	findings diag.Findings,
	o createOptions,
) error {
	catalog, err := a.loadCatalog(ctx)
	if err != nil {
		return err
	}

	set = manifest.Default(set)
	findings = append(findings, manifest.Validate(set)...)
	if findings.Err() == nil {
		findings = append(findings, checkCatalog(set, catalog)...)
	}

	if o.dryRun {
		if err := findings.Err(); err != nil {
			return err
		}

		a.printFindings(findings)
		return a.printSet(o.format, set)
	}

	s, sealer, err := a.openStore(ctx)
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

	a.printFindings(findings)
	w := clusterWriter{
		app:     a,
		store:   s,
		sealer:  sealer,
		set:     set,
		catalog: catalog,
	}

	return w.confirmAndWrite(ctx)
}

// clusterWriter writes a new cluster. Its Cluster document comes last: while it is not there, there is no cluster, and
// a create that was cut short is simply run again.
type clusterWriter struct {
	app     *app
	store   store.Store
	sealer  store.Sealer
	set     manifest.Set
	catalog asset.Catalog
}

func (w clusterWriter) confirmAndWrite(ctx context.Context) error {
	name := w.set.Cluster.Metadata.Name
	_, err := w.store.Get(ctx, manifest.ClusterKey(name))
	if err == nil {
		return withHint(
			fmt.Errorf("there is a cluster %s in %s already", name, w.store.URL()),
			"change it with: slipway replace -f FILE, or slipway edit cluster "+name,
		)
	}

	if !errors.Is(err, store.ErrNotFound) {
		return err
	}

	w.app.printMessage("+ %s (asset catalogue)", manifest.AssetsKey(name))
	w.app.printMessage("+ %s, and %d sealed keys", pki.CertsObjectKey(name), len(pki.KeyNames()))

	for _, g := range w.set.Groups {
		w.app.printMessage(
			"+ %s (%s, %d × %s)",
			manifest.GroupKey(name, g.Metadata.Name),
			g.Spec.Role,
			g.Spec.MinSize,
			g.Spec.MachineType,
		)
	}

	w.app.printMessage(
		"+ %s (Kubernetes %s in %s)",
		manifest.ClusterKey(name),
		w.set.Cluster.Spec.KubernetesVersion,
		w.set.Cluster.Spec.CloudProvider.AWS.Region,
	)
	if err := w.app.confirm("Write cluster " + name + " into " + w.store.URL() + "?"); err != nil {
		return err
	}

	err = w.app.runOperation(
		ctx,
		w.store,
		name,
		"create",
		func(ctx context.Context, op *operation.Operation, guarded store.Store) error {
			op.UpdateRecord(func(r *operation.Record) { r.Documents = w.manifestKeys(name) })
			unguarded := w.store
			w.store = guarded
			if err := w.writeCluster(ctx, name); err != nil {
				return err
			}

			return indexManifests(ctx, unguarded, name)
		},
	)
	if err != nil {
		return err
	}

	w.app.printMessage("cluster %s is written; make it in AWS with: slipway apply %s --yes", name, name)

	return nil
}

// manifestKeys are the keys of the manifests.
func (w clusterWriter) manifestKeys(name string) []string {
	var out []string
	for _, g := range w.set.Groups {
		out = append(out, manifest.GroupKey(name, g.Metadata.Name))
	}

	return append(out, manifest.ClusterKey(name))
}

func (w clusterWriter) writeCluster(ctx context.Context, name string) error {
	if _, err := pki.EnsureBundle(ctx, w.store, w.sealer, name, w.app.Now()); err != nil {
		return err
	}

	catalog, err := w.catalog.YAML()
	if err != nil {
		return err
	}

	if _, err := w.store.Put(ctx, manifest.AssetsKey(name), catalog); err != nil {
		return err
	}

	if err := w.writeGroups(ctx, name); err != nil {
		return err
	}

	_, err = w.store.Create(ctx, manifest.ClusterKey(name), manifest.EncodeCluster(w.set.Cluster))
	if errors.Is(err, store.ErrConflict) {
		return withHint(
			fmt.Errorf("somebody else created cluster %s just now: %w", name, err),
			"see: slipway get groups "+name,
		)
	}

	return err
}

// indexManifests keeps copies of what was written in one object, so that the first plan reads that instead of each document. A
// copy counts only while the original is the same, so this write needs no guard.
func indexManifests(ctx context.Context, s store.Store, name string) error {
	view, err := store.OpenView(ctx, s, name+"/")
	if err != nil {
		return err
	}

	if _, known := view.HasObject(manifest.ClusterKey(name)); !known {
		return nil // a folder has no index
	}

	if _, _, err := readDocuments(ctx, view, name); err != nil {
		return err
	}

	for _, key := range []string{manifest.AssetsKey(name), pki.CertsObjectKey(name)} {
		if _, err := view.Get(ctx, key); err != nil {
			return err
		}
	}

	return view.SaveIndex(ctx)
}

// writeGroups writes the groups, and removes those of a create that was cut short.
func (w clusterWriter) writeGroups(ctx context.Context, name string) error {
	stale, err := w.store.List(ctx, manifest.GroupKey(name, ""))
	if err != nil {
		return err
	}

	for _, g := range w.set.Groups {
		key := manifest.GroupKey(name, g.Metadata.Name)
		stale = slices.DeleteFunc(stale, func(k string) bool { return k == key })
		if _, err := w.store.Put(ctx, key, manifest.EncodeGroup(g)); err != nil {
			return err
		}
	}

	for _, key := range stale {
		if err := w.store.Delete(ctx, key); err != nil {
			return err
		}
	}

	return nil
}
