// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

func newReplaceCommand(a *app) *cobra.Command {
	var file, name string
	cmd := &cobra.Command{
		Use:     "replace -f FILE",
		Short:   "Replace the manifests of a cluster in the state store",
		GroupID: groupCluster,
		Long: `Replace a cluster's manifests in the state store by those of a file. A file may contain the cluster, some of its instance
groups, or both; other groups are kept. The command shows the changed fields, and validates everything before it writes.
Only 'slipway apply' changes AWS.` + exitStatusHelp(),
		Example: "  slipway replace -f demo.yaml --yes\n  slipway get groups demo -o yaml | sed 's/Size: 2/Size: 4/' | slipway replace -f - --yes",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return withHint(errors.New("no manifest is given"), "give -f FILE, or -f - for stdin")
			}

			set, findings, err := a.readManifestFile(file)
			if err != nil {
				return err
			}

			return a.runReplace(cmd.Context(), set, findings, name)
		},
	}

	cmd.Flags().StringVarP(&file, "filename", "f", "", "manifest file, or - for stdin")
	cmd.Flags().StringVar(&name, "name", "", "the cluster, if the file does not contain one (SLIPWAY_CLUSTER)")
	a.addYesFlag(cmd)
	a.addLockFlag(cmd)
	a.addAssetsFlag(cmd)

	return cmd
}

func (a *app) runReplace(ctx context.Context, given manifest.Set, findings diag.Findings, flag string) error {
	s, _, err := a.openStore(ctx)
	if err != nil {
		return err
	}

	name, err := a.clusterNameIn(given, flag)
	if bad := findings.Err(); err != nil && bad != nil {
		return bad // what could not be read may have named it
	}

	if err != nil {
		return err
	}

	c, err := a.loadChange(ctx, s, name)
	if err != nil {
		return err
	}

	c.verb = "replace"

	return c.checkAndWrite(ctx, given, findings)
}

// clusterNameIn finds which cluster a file is about.
func (a *app) clusterNameIn(set manifest.Set, flag string) (string, error) {
	if set.Cluster.Metadata.Name != "" {
		return set.Cluster.Metadata.Name, nil
	}

	for _, g := range set.Groups {
		if name := g.Metadata.Labels[v1alpha1.ClusterLabel]; name != "" {
			return name, nil
		}
	}

	return a.clusterName(nil, flag)
}

// manifestChange replaces documents of a cluster that is in the store, if nobody else does meanwhile.
type manifestChange struct {
	app               *app
	store             store.Store
	before            manifest.Set
	etags             map[string]string
	catalog           asset.Catalog
	usesPinnedCatalog bool // catalog is the one in the state
	verb              string
}

// loadChange reads what is there. Documents that have gone bad are no hindrance: they may be what is to be mended.
func (a *app) loadChange(ctx context.Context, s store.Store, name string) (manifestChange, error) {
	text, etags, err := readDocuments(ctx, s, name)
	if err != nil {
		return manifestChange{}, err
	}

	set, _ := manifest.Parse(text)
	c := manifestChange{
		app:               a,
		store:             s,
		before:            set,
		etags:             etags,
		usesPinnedCatalog: a.catalogSource() == "",
	}
	if c.usesPinnedCatalog {
		c.catalog, err = readPinnedCatalog(ctx, s, name)
	} else {
		c.catalog, err = a.loadCatalog(ctx)
	}

	return c, err
}

// mergeManifests puts the given documents in the place of those that are there.
func (c manifestChange) mergeManifests(given manifest.Set) manifest.Set {
	after := manifest.Set{
		Cluster: c.before.Cluster,
		Groups:  append([]v1alpha1.InstanceGroup{}, given.Groups...),
	}
	if given.Cluster.Kind != "" {
		after.Cluster = given.Cluster
	}

	for _, g := range c.before.Groups {
		if _, replaced := given.Group(g.Metadata.Name); !replaced {
			after.Groups = append(after.Groups, g)
		}
	}

	return manifest.Default(after)
}

// checkManifests returns the whole new set and everything that is wrong with it.
func (c manifestChange) checkManifests(
	given manifest.Set,
	findings diag.Findings,
) (manifest.Set, diag.Findings) {
	after := c.mergeManifests(given)
	findings = append(findings, manifest.Validate(after)...)
	if findings.Err() == nil {
		findings = append(findings, checkCatalog(after, c.catalog)...)
	}

	return after, findings
}

func (c manifestChange) checkAndWrite(ctx context.Context, given manifest.Set, findings diag.Findings) error {
	after, findings := c.checkManifests(given, findings)
	if err := findings.Err(); err != nil {
		return err
	}

	c.app.printFindings(findings)

	return c.confirmAndWrite(ctx, after)
}

// confirmAndWrite shows the difference, asks, and writes the documents that differ.
func (c manifestChange) confirmAndWrite(ctx context.Context, after manifest.Set) error {
	name := c.before.Cluster.Metadata.Name
	writes, err := c.listWrites(after)
	if err != nil {
		return err
	}

	if len(writes) == 0 {
		c.app.printMessage("nothing differs")
		return nil
	}

	for _, line := range manifest.Diff(manifest.Default(c.before), after) {
		c.app.printMessage("%s", line)
	}

	if err := c.app.confirm("Write this into " + c.store.URL() + "?"); err != nil {
		return err
	}

	err = c.app.runOperation(
		ctx,
		c.store,
		name,
		c.verb,
		func(ctx context.Context, op *operation.Operation, guarded store.Store) error {
			c.store = guarded
			for _, w := range writes {
				op.UpdateRecord(func(r *operation.Record) { r.Documents = append(r.Documents, w.key) })
				if err := c.writeDocument(ctx, w); err != nil {
					return err
				}
			}

			return nil
		},
	)
	if err != nil {
		return err
	}

	c.app.printMessage("cluster %s is written; see what changes in AWS with: slipway plan %s", name, name)

	return nil
}

// documentWrite is one object to write.
type documentWrite struct {
	key  string
	body []byte
}

// listWrites lists the objects to write: groups first, so that the cluster never names what is not there.
func (c manifestChange) listWrites(after manifest.Set) ([]documentWrite, error) {
	name := after.Cluster.Metadata.Name
	before := manifest.Default(c.before)
	var out []documentWrite
	if !c.usesPinnedCatalog {
		body, err := c.catalog.YAML()
		if err != nil {
			return nil, err
		}

		out = append(out, documentWrite{manifest.AssetsKey(name), body})
	}

	for _, g := range after.Groups {
		old, _ := before.Group(g.Metadata.Name)
		if body := manifest.EncodeGroup(g); string(body) != string(manifest.EncodeGroup(old)) {
			out = append(out, documentWrite{manifest.GroupKey(name, g.Metadata.Name), body})
		}
	}

	if body := manifest.EncodeCluster(after.Cluster); string(
		body,
	) != string(
		manifest.EncodeCluster(before.Cluster),
	) {
		out = append(out, documentWrite{manifest.ClusterKey(name), body})
	}

	return out, nil
}

func (c manifestChange) writeDocument(ctx context.Context, d documentWrite) error {
	var err error
	if etag, there := c.etags[d.key]; there {
		_, err = c.store.Update(ctx, d.key, d.body, etag)
	} else if d.key == manifest.AssetsKey(c.before.Cluster.Metadata.Name) {
		_, err = c.store.Put(ctx, d.key, d.body)
	} else {
		_, err = c.store.Create(ctx, d.key, d.body)
	}

	if errors.Is(err, store.ErrConflict) {
		return withHint(
			fmt.Errorf("somebody else changed the cluster just now: %w", err),
			"look at it with slipway get, then try again",
		)
	}

	return err
}
