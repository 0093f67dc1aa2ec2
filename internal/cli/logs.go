// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/inventory"
	"github.com/slipway-k8s/slipway/internal/cluster/logs"
)

// logsOptions are the flags of 'slipway logs'.
type logsOptions struct {
	name    string
	request logs.Request
	lines   logs.Options
}

func newLogsCommand(a *app) *cobra.Command {
	var o logsOptions
	cmd := &cobra.Command{
		Use:     "logs MACHINE|COMPONENT",
		Short:   "Print the logs of a machine or of a component",
		GroupID: groupCluster,
		Long: `Print logs without SSH.

COMPONENT is one of ` + strings.Join(logs.ComponentNames(), ", ") + `:
the logs of its containers or of its systemd unit, on all machines or on that of --machine.

MACHINE is an instance id, a node, an address, a control-plane slot such as control-plane-a, or a group with one machine: the
journal of Slipway's units, which its kubelet serves through the Kubernetes API. If the API or the node does not answer, the
serial console from EC2 is printed instead: the kernel, the boot and the agent's reports. --console prints it anyway.` +
			exitStatusHelp(),
		Example: "  slipway logs kube-apiserver --name demo --since 10m\n  slipway logs kubelet --machine i-0123 --tail 100\n" +
			"  slipway logs control-plane-a -f\n  slipway logs i-0123 --console",
		Args: requireOneArgument("MACHINE or COMPONENT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := clusterOfFlag(a, o.name)
			if err != nil {
				return err
			}

			o.request.Target = args[0]
			o.request.Previous = o.lines.Previous
			o.request.Follow = o.lines.Follow

			return a.runLogs(cmd.Context(), name, o)
		},
	}

	flags := cmd.Flags()
	flags.StringVar(&o.name, "name", "", "the cluster (SLIPWAY_CLUSTER)")
	flags.StringVar(&o.request.Machine, "machine", "", "only this machine's logs of the component")
	flags.BoolVar(&o.request.Console, "console", false, "print the machine's serial console")
	flags.BoolVarP(&o.lines.Follow, "follow", "f", false, "print new lines until interrupted")
	flags.BoolVarP(&o.lines.Previous, "previous", "p", false, "the logs of the previous containers, which ended")
	flags.DurationVar(&o.lines.Since, "since", 0, "only lines of the last time, such as 5m; not for consoles")
	flags.IntVar(&o.lines.Tail, "tail", 0, "only the last lines of each log; 0: all")

	return cmd
}

// runLogs chooses where the logs come from and prints them.
func (a *app) runLogs(ctx context.Context, name string, o logsOptions) error {
	live, err := inventory.Open(ctx, a.newClusterEnv(), name)
	if err != nil {
		return err
	}

	contents, err := live.Read(ctx)
	if err != nil {
		return err
	}

	source, err := logs.ChooseSource(
		o.request,
		logs.Facts{Machines: contents.Machines, APIError: contents.NodesError},
	)
	if err != nil {
		return err
	}

	reader := logs.Reader{Consoles: ec2.NewFromConfig(live.Config), Now: a.Now}
	if source.Kind != logs.Console {
		if reader.Client, err = live.Kubernetes(ctx); err != nil {
			return err
		}
	}

	if source.Note != "" {
		a.printMessage("%s", source.Note)
	}

	if source.Kind == logs.Console && o.lines.Since != 0 {
		a.printMessage("--since has no effect on a console: its lines have no times")
	}

	out := &countingWriter{Writer: a.Stdout}
	err = reader.Copy(ctx, source, o.lines, out)
	if err == nil && out.written == 0 && ctx.Err() == nil {
		a.printMessage("%s", describeNoLines(o.lines, a.Now()))
	}

	return err
}

// describeNoLines tells why nothing was printed.
func describeNoLines(o logs.Options, now time.Time) string {
	if o.Since == 0 {
		return "there are no lines"
	}

	since := now.Add(-o.Since).UTC().Format(time.DateTime)

	return fmt.Sprintf("there are no lines since %s UTC; give a longer --since than %s, or leave it out", since, o.Since)
}

// countingWriter counts the bytes that are written through it.
type countingWriter struct {
	io.Writer

	written int
}

// Write implements [io.Writer].
func (w *countingWriter) Write(p []byte) (int, error) {
	n, err := w.Writer.Write(p)
	w.written += n

	return n, err
}
