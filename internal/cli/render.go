// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/publish"
	"github.com/slipway-k8s/slipway/internal/cluster/stackapply"
	"github.com/slipway-k8s/slipway/internal/infra/render/cloudformation"
	"github.com/slipway-k8s/slipway/internal/infra/render/terraform"
	"github.com/slipway-k8s/slipway/internal/lib/privatefile"
)

// renderOptions are the flags of the commands that write a template.
type renderOptions struct {
	clusterOptions
	out         string
	module      bool
	forStack    bool
	publish     bool
	skipPublish bool // the output does not refer to published objects
}

// renderHelp is part of the help of each renderer of templates.
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

Terraform refuses to destroy the etcd volumes and the key that encrypts them, until prevent_destroy is removed by hand. An
etcd volume that was lost is created by Terraform, not by machines.` + renderHelp + exitStatusHelp(),
		Example: `  slipway render terraform demo --out demo --publish --yes
  terraform -chdir=demo init
  terraform -chdir=demo plan`,
		RunE: func(cmd *cobra.Command, args []string) error {
			defer a.printCalls(o.clusterOptions)
			session, d, err := templateRenderer{a}.loadGraph(cmd.Context(), args, o)
			if err != nil {
				return err
			}

			body, err := terraform.Render(
				d.Graph,
				terraform.Options{Region: session.Config.Region, AsModule: o.module},
			)
			if err != nil {
				return err
			}

			file := ""
			if o.out != "" {
				file = filepath.Join(o.out, "main.tf.json")
			}

			return templateRenderer{a}.writeRendering(d, body, file)
		},
	}

	addRenderFlags(a, cmd, &o)
	cmd.Flags().StringVar(
		&o.out, "out", "",
		"directory to write main.tf.json into (default: stdout)",
	)
	cmd.Flags().BoolVar(
		&o.module, "module", false,
		"write a module: the calling configuration configures the provider",
	)

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
  aws cloudformation deploy --stack-name demo --template-file demo.json --capabilities CAPABILITY_NAMED_IAM --s3-bucket BUCKET`,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.forStack = true
			defer a.printCalls(o.clusterOptions)
			session, d, err := templateRenderer{a}.loadGraph(cmd.Context(), args, o)
			if err != nil {
				return err
			}

			body, err := cloudformation.Render(d.Graph, cloudformation.Options{
				Description: stackapply.Description(session),
			})
			if err != nil {
				return err
			}

			if len(body) > cloudformation.MaxBodySize {
				a.printMessage(
					"the template has %d bytes; over %d it must be in S3: use aws cloudformation deploy --s3-bucket",
					len(body),
					cloudformation.MaxBodySize,
				)
			}

			return templateRenderer{a}.writeRendering(d, body, o.out)
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

// templateRenderer renders templates.
type templateRenderer struct{ *app }

// loadGraph computes a cluster's graph without looking at what exists of it. It publishes what machines
// download if that was asked for.
func (a templateRenderer) loadGraph(
	ctx context.Context,
	args []string,
	o renderOptions,
) (*cluster.Session, *cluster.Desired, error) {
	name, err := a.clusterName(args, o.name)
	if err != nil {
		return nil, nil, err
	}

	session, d, err := cluster.LoadGraph(ctx, o.withAgent(a.newClusterEnv()), name, o.forStack)
	if err == nil && o.publish {
		err = publish.CheckFunctionCode(ctx, d)
	}

	if err != nil || o.skipPublish || len(d.Unpublished) == 0 {
		return session, d, err
	}

	if err := session.CheckPublishedSize(ctx, d); err != nil {
		return session, d, err
	}

	if !o.publish {
		a.printMessage(
			"%d objects that machines read are not in %s yet; publish them before machines start: --publish --yes",
			len(d.Unpublished),
			d.MachineStore.URL(),
		)

		return session, d, nil
	}

	return session, d, a.confirmAndPublish(ctx, session, d)
}

// confirmAndPublish prints the objects that are published, asks, and publishes them.
func (a templateRenderer) confirmAndPublish(ctx context.Context, session *cluster.Session, d *cluster.Desired) error {
	for _, key := range d.Unpublished {
		fmt.Fprintf(a.Stderr, "  + object/%s\n", strings.TrimPrefix(key, session.Name+"/machine/"))
	}

	if err := a.confirm(fmt.Sprintf("Publish this in %s?", d.MachineStore.URL())); err != nil {
		return err
	}

	env, err := a.newLockingEnv()
	if err != nil {
		return err
	}

	return publish.Run(ctx, env, session, d)
}

// writeRendering writes a rendering into a file, or to stdout if file is empty.
func (a templateRenderer) writeRendering(d *cluster.Desired, body []byte, file string) error {
	if file == "" {
		_, err := a.Stdout.Write(body)
		return err
	}

	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("create the directory of %s: %w", file, err)
	}

	// It contains user data and the names of everything: like a plan file, it is its owner's.
	if err := privatefile.Write(file, body); err != nil {
		return fmt.Errorf("write the rendering: %w", err)
	}

	a.printMessage("wrote %s: %d resources", file, len(d.Graph.Nodes()))

	return nil
}
