// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster/manifests"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

func newReplaceCommand(a *app) *cobra.Command {
	var file, name string
	var prune bool
	cmd := &cobra.Command{
		Use:     "replace -f FILE",
		Short:   "Replace the manifests of a cluster in the state store",
		GroupID: groupCluster,
		Long: `Replace a cluster's manifests in the state store by those of a file. A file may contain the cluster, some of its instance
groups, or both; other groups are kept. The command shows the changed fields, and validates everything before it writes.
Only 'slipway apply' changes AWS.

With --prune the file must contain the whole cluster: groups that are absent from it are shown and removed from the state
store. The next apply deletes their machines.` + exitStatusHelp(),
		Example: "  slipway replace -f demo.yaml --yes\n  slipway get groups demo -o yaml | sed 's/Size: 2/Size: 4/' | slipway replace -f - --yes\n" +
			"  slipway get all demo -o yaml > demo.yaml; $EDITOR demo.yaml; slipway replace -f demo.yaml --prune --yes",
		Args: requireNoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				return withHint(errors.New("no manifest is given"), "give -f FILE, or -f - for stdin")
			}

			set, findings, err := a.readManifestFile(file)
			if err != nil {
				return err
			}

			return a.runReplace(cmd.Context(), replaceRequest{set, findings, name, prune})
		},
	}

	cmd.Flags().StringVarP(&file, "filename", "f", "", "manifest file, or - for stdin")
	cmd.Flags().StringVar(
		&name, "name", "",
		"the cluster, if the file does not contain one (SLIPWAY_CLUSTER)",
	)
	cmd.Flags().BoolVar(&prune, "prune", false, "remove the groups that are absent from the file")
	a.addYesFlag(cmd)
	a.addLockFlag(cmd)
	a.addAssetsFlag(cmd)

	return cmd
}

// replaceRequest is what 'slipway replace' was given.
type replaceRequest struct {
	given    manifest.Set
	findings diag.Findings // of the file
	name     string        // --name
	prune    bool          // --prune
}

func (a *app) runReplace(ctx context.Context, req replaceRequest) error {
	s, _, err := a.stores().State(ctx)
	if err != nil {
		return err
	}

	name, err := a.clusterNameIn(req.given, req.name)
	if bad := req.findings.Err(); err != nil && bad != nil {
		return bad // the part that cannot be parsed may name the cluster
	}

	if err != nil {
		return err
	}

	c, err := manifests.LoadChange(ctx, s, name, a.catalogSource())
	if err != nil {
		return err
	}

	if req.prune {
		c = c.Prune()
	}

	after, findings := c.Check(req.given, req.findings)
	if findings.Err() == nil {
		findings = append(findings, c.CheckZones(ctx, a.newClusterEnv(), after)...)
	}

	if err := findings.Err(); err != nil {
		return err
	}

	a.printFindings(findings)

	return a.confirmAndChange(ctx, c, "replace", after)
}

// clusterNameIn returns the name of the cluster in a file, else --name, else SLIPWAY_CLUSTER.
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

// confirmAndChange shows the difference, asks, and writes the documents that differ. kind is the operation
// in the journal.
func (a *app) confirmAndChange(
	ctx context.Context,
	c manifests.Change,
	kind string,
	after manifest.Set,
) error {
	s, _, err := a.stores().State(ctx)
	if err != nil {
		return err
	}

	if c, err = c.PinImages(ctx, a.newClusterEnv(), after); err != nil {
		return err
	}

	writes, err := c.Writes(after)
	if err != nil {
		return err
	}

	if len(writes) == 0 {
		a.printMessage("nothing differs")
		return markChange(ctx, a, c)
	}

	for _, line := range c.Lines(after) {
		a.printMessage("%s", line)
	}

	a.warnOfOpenAPI(c.Before(), after)
	if err := a.confirm("Write this into " + s.URL() + "?"); err != nil {
		return err
	}

	env, err := a.newLockingEnv()
	if err != nil {
		return err
	}

	if err := c.Apply(ctx, env, kind, writes); err != nil {
		return err
	}

	name := c.Name()
	a.printMessage("cluster %s was written to the state store; see what changes in AWS with: slipway plan %s", name, name)

	return nil
}

// markChange tells AWS that a change is the last one, if the command that has written it was killed before it did.
func markChange(ctx context.Context, a *app, c manifests.Change) error {
	env, err := a.newLockingEnv()
	if err != nil {
		return err
	}

	return c.Mark(ctx, env)
}
