// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/apply"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/stackapply"
)

// clusterOptions are the flags of commands that compare a cluster with AWS.
type clusterOptions struct {
	name                string
	nodeBinary          string
	verbose             bool
	destroyData         bool
	recreateLostVolumes bool
	// provisioner is --via; empty: the recorded one.
	provisioner string
	stack       stackapply.Options
}

// addClusterFlags adds the flags of commands that read the cluster from AWS.
func addClusterFlags(cmd *cobra.Command, o *clusterOptions) {
	addNameFlag(cmd, &o.name)
	cmd.Flags().BoolVarP(
		&o.verbose,
		"verbose",
		"v",
		false,
		"print the calls to AWS, the retries with their causes, and the time waited",
	)
}

// addBuildFlags adds the flags of commands that build the graph of a cluster.
func addBuildFlags(cmd *cobra.Command, o *clusterOptions) {
	cmd.Flags().StringVar(
		&o.nodeBinary,
		"node-binary",
		"",
		"the agent for machines (SLIPWAY_NODE_BINARY; default: slipway-node next to slipway)",
	)

	cmd.Flags().StringVar(
		&o.provisioner,
		"via",
		"",
		"provisioner: direct or cloudformation (default: the cluster's own, or direct for a new cluster)",
	)

	cmd.Flags().StringArrayVar(
		&o.stack.Parameters,
		"parameter",
		nil,
		"with CloudFormation: NAME=VALUE of a template parameter; repeatable",
	)

	cmd.Flags().BoolVar(
		&o.stack.ResetParameters,
		"reset-parameters",
		false,
		"with CloudFormation: use the manifest's values, also for parameters that were set in the console",
	)

	cmd.Flags().BoolVar(
		&o.destroyData,
		"destroy-data",
		false,
		"allow the deletion of volumes and keys that are no longer in the manifests",
	)

	cmd.Flags().BoolVar(
		&o.recreateLostVolumes,
		strings.TrimPrefix(cluster.RecreateLostVolumesFlag, "--"),
		false,
		"allow the creation of empty volumes in place of etcd volumes that were deleted outside of slipway",
	)
}

// addTakeOverFlag adds the flag of commands that may take a cluster over.
func addTakeOverFlag(cmd *cobra.Command, id *string) {
	cmd.Flags().StringVar(
		id,
		"take-over",
		"",
		"id of a cluster that this state store takes over from another copy of the store, as the error names it",
	)
}

// printCalls prints the calls to AWS of this process, if --verbose is given.
func (a *app) printCalls(o clusterOptions) {
	all, mutating := a.calls.TotalCalls()
	if !o.verbose || all == 0 {
		return
	}

	calls := a.calls.Calls()
	for _, c := range slices.Sorted(maps.Keys(calls)) {
		fmt.Fprintf(a.Stderr, "%5d %s\n", calls[c], c)
	}

	fmt.Fprintf(
		a.Stderr,
		"%d calls to AWS, %d of which may change something; %s\n",
		all,
		mutating,
		a.calls.Stats(),
	)
}

// planOptions returns the risks that the flags take.
func (o clusterOptions) planOptions() cluster.PlanOptions {
	return cluster.PlanOptions{DestroyData: o.destroyData, RecreateLostVolumes: o.recreateLostVolumes}
}

// applyRequest returns the request to apply a cluster with these flags.
func (o clusterOptions) applyRequest(name string) apply.Request {
	return apply.Request{
		Name:        name,
		Provisioner: clusterstate.Provisioner(o.provisioner),
		Stack:       o.stack,
		Options:     o.planOptions(),
	}
}

// withAgent sets the agent that --node-binary names.
func (o clusterOptions) withAgent(env *cluster.Env) *cluster.Env {
	if o.nodeBinary != "" {
		env.AgentPath = o.nodeBinary
	}

	return env
}

// clusterName returns the argument, else --name, else SLIPWAY_CLUSTER.
func (a *app) clusterName(args []string, flag string) (string, error) {
	if len(args) > 0 && flag != "" && args[0] != flag {
		return "", withHint(
			fmt.Errorf("two clusters are named: %s and, by --name, %s", args[0], flag),
			"give one of them",
		)
	}

	if len(args) > 0 {
		return args[0], nil
	}

	if name := a.flagOrEnv(flag, "SLIPWAY_CLUSTER"); name != "" {
		return name, nil
	}

	return "", withHint(errNoCluster, "give its NAME, --name or SLIPWAY_CLUSTER; slipway get clusters lists them")
}

// clusterOfFlag returns --name, else SLIPWAY_CLUSTER, for a command whose argument is not a cluster.
func clusterOfFlag(a *app, flag string) (string, error) {
	name, err := a.clusterName(nil, flag)
	if err != nil {
		return "", withHint(errNoCluster, "give --name CLUSTER or SLIPWAY_CLUSTER; slipway get clusters lists them")
	}

	return name, nil
}

// errNoCluster means that a command was not told which cluster it is about.
var errNoCluster = errors.New("no cluster is named")

// addNameFlag adds --name to a command for one cluster. A command that does not say which arguments it has takes one, NAME.
func addNameFlag(cmd *cobra.Command, into *string) {
	cmd.Flags().StringVar(into, "name", "", "the cluster (SLIPWAY_CLUSTER)")

	if cmd.Args == nil {
		cmd.Args = allowOneArgument
	}
}
