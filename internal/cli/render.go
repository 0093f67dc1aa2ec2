// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/infra/render/cloudformation"
	"github.com/slipway-k8s/slipway/internal/infra/render/terraform"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// renderOptions are the flags of the commands that write a template.
type renderOptions struct {
	clusterOptions
	out         string
	module      bool
	forStack    bool
	publish     bool
	skipPublish bool // what machines read does not matter
}

// renderHelp is what every rendering needs to say.
const renderHelp = `

Images, account and region are looked up in AWS; nothing is changed. The output contains no secret. It refers to the agent and
the node documents by their hashes: --publish writes these to the store that machines read, as 'slipway apply' does, after
confirmation. Machines that start earlier wait for them. Publish and render again after each change of the manifests. Do not
use a template and 'slipway apply' for the same cluster: each would revert the changes of the other.`

func newRenderCommand(a *app) *cobra.Command {
	return newGroupCommand("render", "Write a cluster's resources for Terraform or CloudFormation", groupCluster,
		newRenderTerraformCommand(a), newRenderCloudFormationCommand(a), newRenderDiagramCommand(a))
}

func newRenderTerraformCommand(a *app) *cobra.Command {
	var o renderOptions
	cmd := &cobra.Command{
		Use:   "terraform [NAME]",
		Short: "Write a Terraform configuration",
		Long: `Write main.tf.json, a configuration for Terraform 1.5 or newer and the provider hashicorp/aws 6.25 or newer, to stdout or
into a directory. It is a root configuration; with --module it is a module for another configuration, which then configures
the provider. Machine types and sizes are variables; resource addresses are those of 'slipway plan'.

Terraform refuses to destroy the etcd volumes and the key that encrypts them, until prevent_destroy is removed by hand.` + renderHelp + exitStatusHelp(),
		Example: `  slipway render terraform demo --out demo --publish --yes
  terraform -chdir=demo init
  terraform -chdir=demo plan`,
		RunE: func(cmd *cobra.Command, args []string) error {
			t, d, err := a.loadGraph(cmd.Context(), args, o)
			if t != nil {
				defer t.printCalls()
			}

			if err != nil {
				return err
			}

			body, err := terraform.Render(
				d.graph,
				terraform.Options{Region: t.cfg.Region, AsModule: o.module},
			)
			if err != nil {
				return err
			}

			file := ""
			if o.out != "" {
				file = filepath.Join(o.out, "main.tf.json")
			}

			return t.writeRendering(d, body, file)
		},
	}

	addRenderFlags(a, cmd, &o)
	cmd.Flags().StringVar(&o.out, "out", "", "directory to write main.tf.json into (default: stdout)")
	cmd.Flags().BoolVar(&o.module, "module", false, "write a module: the calling configuration configures the provider")

	return cmd
}

func newRenderCloudFormationCommand(a *app) *cobra.Command {
	var o renderOptions
	cmd := &cobra.Command{
		Use:   "cloudformation [NAME]",
		Short: "Write a CloudFormation template",
		Long: `Write a CloudFormation template in JSON, to stdout or into a file. It names IAM roles, so a stack needs
CAPABILITY_NAMED_IAM. Machine types and sizes are parameters; identifiers for other stacks are exported.

The etcd volumes and the key that encrypts them outlive the stack. The stack waits for a signal from each healthy machine.
A changed launch template replaces the machines of the control plane one by one, then the workers; a machine that is not
healthy in time stops the update and rolls it back.` + renderHelp + exitStatusHelp(),
		Example: `  slipway render cloudformation demo --out demo.json --publish --yes
  aws cloudformation deploy --stack-name demo --template-file demo.json --capabilities CAPABILITY_NAMED_IAM`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.forStack = true
			t, d, err := a.loadGraph(cmd.Context(), args, o)
			if t != nil {
				defer t.printCalls()
			}

			if err != nil {
				return err
			}

			body, err := cloudformation.Render(d.graph, cloudformation.Options{
				Description: t.templateDescription(),
			})
			if err != nil {
				return err
			}

			if len(body) > cloudformation.MaxBodySize {
				t.app.printMessage(
					"the template has %d bytes; over %d it has to lie in S3: give aws cloudformation deploy --s3-bucket",
					len(body),
					cloudformation.MaxBodySize,
				)
			}

			return t.writeRendering(d, body, o.out)
		},
	}

	addRenderFlags(a, cmd, &o)
	cmd.Flags().StringVar(&o.out, "out", "", "file to write (default: stdout)")

	return cmd
}

func addRenderFlags(a *app, cmd *cobra.Command, o *renderOptions) {
	addClusterFlags(cmd, &o.clusterOptions)
	cmd.Flags().StringVar(
		&o.nodeBinary,
		"node-binary",
		"",
		"the agent for machines (SLIPWAY_NODE_BINARY; default: slipway-node next to slipway)",
	)

	cmd.Flags().BoolVar(
		&o.publish,
		"publish",
		false,
		"publish the agent, the node documents and the encrypted keys that machines read",
	)

	a.addYesFlag(cmd)
}

// loadGraph computes a cluster's graph without looking at what exists of it.
func (a *app) loadGraph(
	ctx context.Context,
	args []string,
	o renderOptions,
) (*clusterSession, *desiredState, error) {
	name, err := a.clusterName(args, o.name)
	if err != nil {
		return nil, nil, err
	}

	d, err := a.loadDesiredState(ctx, name)
	if err != nil {
		return nil, nil, err
	}

	d.forStack = o.forStack
	t, err := a.newSessionWithGraph(ctx, d, o.clusterOptions)
	if err != nil || o.skipPublish {
		return t, d, err
	}

	return t, d, t.publishForRender(ctx, d, o.publish)
}

// newSessionWithGraph computes the graph of manifests that are loaded.
func (a *app) newSessionWithGraph(
	ctx context.Context,
	d *desiredState,
	o clusterOptions,
) (*clusterSession, error) {
	t, err := a.newClusterSession(
		ctx,
		o,
		d.manifests.Cluster.Metadata.Name,
		d.manifests.Cluster.Spec.CloudProvider.AWS.Region,
	)
	if err != nil {
		return nil, err
	}

	if err := a.resolveMachineStore(ctx, d); err != nil {
		return t, err
	}

	return t, t.buildGraph(ctx, d)
}

// publishForRender publishes what a rendering refers to, if it is asked to, or says that it is not there.
func (t *clusterSession) publishForRender(
	ctx context.Context,
	d *desiredState,
	publish bool,
) error {
	if len(d.unpublished) == 0 {
		return nil
	}

	if !publish {
		t.app.printMessage(
			"%d objects that machines read are not in %s yet; publish them before machines start: --publish --yes",
			len(d.unpublished),
			d.machineStore.URL(),
		)

		return nil
	}

	for _, key := range d.unpublished {
		fmt.Fprintf(t.app.Stderr, "  + object/%s\n", strings.TrimPrefix(key, t.name+"/machine/"))
	}

	if err := t.app.confirm(fmt.Sprintf("Publish this in %s?", d.machineStore.URL())); err != nil {
		return err
	}

	s, _, err := t.app.openStore(ctx)
	if err != nil {
		return err
	}

	return t.app.runOperation(
		ctx,
		s,
		t.name,
		"publish",
		func(ctx context.Context, op *operation.Operation, _ store.Store) error {
			t.operation = op
			op.UpdateRecord(
				func(r *operation.Record) { r.Plan = &operation.ChangeCounts{Publish: len(d.unpublished)} },
			)
			return t.publishObjects(ctx, d)
		},
	)
}

// writeRendering puts a rendering into file, or on stdout where none is named.
func (t *clusterSession) writeRendering(d *desiredState, body []byte, file string) error {
	if file == "" {
		_, err := t.app.Stdout.Write(body)
		return err
	}

	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("make the folder of %s: %w", file, err)
	}

	if err := os.WriteFile(file, body, 0o644); err != nil {
		return fmt.Errorf("write the rendering: %w", err)
	}

	t.app.printMessage("wrote %s: %d resources", file, len(d.graph.Nodes()))

	return nil
}
