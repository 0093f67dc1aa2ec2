// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/infra/render/diagram"
)

func newRenderDiagramCommand(a *app) *cobra.Command {
	var o renderOptions
	format := "svg"
	cmd := &cobra.Command{
		Use:   "diagram [NAME]",
		Short: "Draw a cluster: zones, subnets, groups, load balancers and allowed traffic",
		Long: `Draw a cluster from its manifests, as one self-contained SVG image without scripts, to stdout or into a file: the network
with its zones and subnets, the groups of machines in them, load balancers with arrows to their targets, and a table of the
traffic that security groups allow.

Images, account and region are looked up in AWS; nothing is changed.` + exitStatusHelp(),
		Example: `  slipway render diagram demo --out demo.svg
  slipway render diagram demo -o svg >demo.svg`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if format != "svg" {
				return fmt.Errorf("-o %s: a diagram can be drawn as svg only", format)
			}

			defer a.printCalls(o.clusterOptions)
			_, d, err := templateRenderer{a}.loadGraph(
				cmd.Context(),
				args,
				renderOptions{clusterOptions: o.clusterOptions, skipPublish: true},
			)
			if err != nil {
				return err
			}

			return templateRenderer{a}.writeRendering(d, diagram.RenderSVG(d.Graph), o.out)
		},
	}

	addClusterFlags(cmd, &o.clusterOptions)
	cmd.Flags().StringVar(
		&o.nodeBinary,
		"node-binary",
		"",
		"the agent for machines (SLIPWAY_NODE_BINARY; default: slipway-node next to slipway)",
	)

	cmd.Flags().StringVarP(&format, "output", "o", format, "svg")
	cmd.Flags().StringVar(&o.out, "out", "", "file to write (default: stdout)")

	return cmd
}
