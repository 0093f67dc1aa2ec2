// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/infra/aws/discovery"
	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

func newIAMCommand(a *app) *cobra.Command {
	return newGroupCommand(
		"iam",
		"Print IAM policies",
		groupState,
		newOperatorPolicyCommand(a),
	)
}

// policyOptions are the flags of 'slipway iam operator-policy'.
type policyOptions struct {
	name, account, format string
	readOnly, stateInit   bool
}

func newOperatorPolicyCommand(a *app) *cobra.Command {
	var o policyOptions
	cmd := &cobra.Command{
		Use:   "operator-policy [NAME]",
		Short: "Print the least-privilege IAM policies for operators",
		Long: `Print the least-privilege IAM policies to create, plan, apply and delete cluster NAME: created resources must have the
cluster's tag, and changes and deletions require it. The cluster need not exist.

A managed policy has at most 6,144 characters, so there may be several documents: attach all of them. --read-only is enough
for 'slipway plan'. --state-init is for 'slipway state init', once.

The account is that of the current credentials, unless --account sets it; the region is --region or AWS_REGION. -o json
prints {"policies": [{"name", "characters", "document"}]}.` + exitStatusHelp(),
		Example: "  slipway iam operator-policy demo -o json | jq '.policies[0].document'\n  slipway iam operator-policy demo --read-only -o json",
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := a.clusterName(args, o.name)
			if err != nil {
				return err
			}

			return a.printOperatorPolicy(cmd.Context(), name, o)
		},
	}

	addNameFlag(cmd, &o.name)
	cmd.Flags().StringVar(&o.account, "account", "", "AWS account ID, 12 digits")
	cmd.Flags().BoolVar(&o.readOnly, "read-only", false, "only what 'slipway plan' needs")
	cmd.Flags().BoolVar(&o.stateInit, "state-init", false, "only what 'slipway state init' needs")
	addFormatFlag(cmd, &o.format, formatTable, formatJSON, formatYAML)

	return cmd
}

// policyDocument is one policy as printed.
type policyDocument struct {
	Name       string           `json:"name"`
	Characters int              `json:"characters"`
	Document   iampolicy.Policy `json:"document"`
}

func (a *app) printOperatorPolicy(ctx context.Context, name string, o policyOptions) error {
	if err := checkName(name); err != nil {
		return err
	}

	in, err := a.buildPolicyInput(ctx, name, o)
	if err != nil {
		return err
	}

	docs := iampolicy.BuildPolicies(in)
	label := "slipway-" + name

	switch {
	case o.stateInit && len(in.Stores) == 0:
		return withHint(errors.New("the state store is not on S3"), "give --state s3://bucket/prefix")
	case o.stateInit:
		docs = []iampolicy.Policy{iampolicy.BuildStateInitPolicy(in, in.Stores[0])}
		label = "slipway-state-" + in.Stores[0].Bucket
	case o.readOnly:
		label += "-read"
	}

	var list []policyDocument

	for i, d := range docs {
		p := policyDocument{Name: label, Characters: d.Size(), Document: d}
		if len(docs) > 1 {
			p.Name = fmt.Sprintf("%s-%d", label, i+1)
		}

		list = append(list, p)
	}

	if o.format != formatTable {
		return a.printValue(o.format, map[string]any{"policies": list})
	}

	w := tabwriter.NewWriter(a.Stdout, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w, "POLICY\tCHARACTERS\tSTATEMENTS\tACTIONS")

	for i, p := range list {
		fmt.Fprintf(
			w,
			"%s\t%d of %d\t%d\t%d\n",
			p.Name,
			p.Characters,
			iampolicy.MaxPolicySize,
			len(p.Document.Statement),
			len(iampolicy.AllowedActions(docs[i:i+1])),
		)
	}

	return w.Flush()
}

// buildPolicyInput finds whose rights are meant. The stores are the state store, and that of the machines if the state has the
// cluster and it is another one.
func (a *app) buildPolicyInput(ctx context.Context, name string, o policyOptions) (iampolicy.Input, error) {
	cfg, err := a.awsConfig(ctx)
	if err != nil {
		return iampolicy.Input{}, err
	}

	in := iampolicy.Input{
		Partition:     partitionOf(cfg.Region),
		Region:        cfg.Region,
		Account:       o.account,
		Cluster:       name,
		ReadOnly:      o.readOnly,
		RolePath:      model.RolePath(name, cfg.Region),
		KeyAlias:      model.KeyAliasName(name),
		LoadBalancers: model.LoadBalancerNames(name),
	}
	if in.Account == "" {
		who, err := discovery.GetCallerIdentity(ctx, cfg)
		if err != nil {
			return in, withHint(err, "give --account, or credentials")
		}

		in.Account = who.Account
		in.Partition = who.Partition
	}

	url, err := a.stateURL()
	if err != nil {
		return in, err
	}

	in.Stores = appendStore(nil, url)
	if s, _, err := a.openStore(ctx); err == nil { // it need not be there yet
		if set, err := a.loadManifests(ctx, s, name); err == nil {
			in.Stores = appendStore(in.Stores, set.Cluster.Spec.ConfigStore.Base)
			addNamedResources(&in, set)
		}
	}

	return in, nil
}

// addNamedResources adds what a cluster's manifests name or need that others do not.
func addNamedResources(in *iampolicy.Input, set manifest.Set) {
	for _, g := range set.Groups {
		in.WarmPools = in.WarmPools || g.Spec.WarmPool.PoolState != ""
	}

	if manifest.HasDNS(set.Cluster.Spec) {
		in.DNSNames, in.HostedZones = []string{
			set.Cluster.Spec.API.PublicName,
		}, model.UnmanagedZones(
			set.Cluster.Spec,
		)
	}

	for _, p := range set.Cluster.Spec.Networking.VPCPeerings {
		in.PeerVPCs = append(in.PeerVPCs, p.NetworkID)
		in.RouteTables = append(in.RouteTables, p.RouteTables...)
	}
}

func appendStore(list []iampolicy.StoreLocation, url string) []iampolicy.StoreLocation {
	place, err := store.ParseURL(url)
	if err != nil || place.Bucket == "" {
		return list
	}

	return append(list, iampolicy.StoreLocation{Bucket: place.Bucket, Prefix: place.Prefix})
}

// partitionOf is the part of AWS that a region lies in.
func partitionOf(region string) string {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return "aws-cn"
	case strings.HasPrefix(region, "us-gov-"):
		return "aws-us-gov"
	}

	return "aws"
}
