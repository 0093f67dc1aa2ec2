// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"text/tabwriter"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/permissions"
	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

func newIAMCommand(a *app) *cobra.Command {
	return newGroupCommand(
		"iam",
		"Manage IAM roles of pods, and print IAM policies",
		groupState,
		newOperatorPolicyCommand(a),
		newBoundaryCommand(a),
		newServiceAccountCommand(a),
		newInitDiscoveryCommand(a),
	)
}

// policyOptions are the flags of 'slipway iam operator-policy'.
type policyOptions struct {
	name, account, format string
	readOnly, stateInit   bool
	deletion              bool
	allowExisting         bool
	discoveryInit         string
}

func newOperatorPolicyCommand(a *app) *cobra.Command {
	var o policyOptions
	cmd := &cobra.Command{
		Use:   "operator-policy [NAME]",
		Short: "Print the least-privilege IAM policies for operators",
		Long: `Print the least-privilege IAM policies to create, plan, apply and delete cluster NAME: created resources must have the
cluster's tag, and changes and deletions require it. The cluster need not exist.

If it exists, its manifests add what their fields need. Operators write manifests, so resources of others that they name, such as the role
of an existing instance profile, a managed policy or a VPC, are left out and named on standard error. --allow-existing adds them. It
checks that an operator of the cluster has signed the manifests, for which it opens the key of the cluster's authority.

A managed policy has at most 6,144 characters, so there may be several documents: attach all of them. --read-only is enough
for the commands that only read. --state-init is for 'slipway state init', once. --deletion is for 'slipway delete cluster
--destroy-data', in addition to the policies without a flag: it names the KMS key of the existing cluster. --discovery-init
is for 'slipway iam init-discovery', once.

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
	cmd.Flags().BoolVar(&o.readOnly, "read-only", false, "only what commands that read need: no change, no key")
	cmd.Flags().BoolVar(&o.stateInit, "state-init", false, "only what 'slipway state init' needs")
	cmd.Flags().BoolVar(&o.deletion, "deletion", false, "only the deletion of the cluster's KMS key")
	cmd.Flags().BoolVar(&o.allowExisting, "allow-existing", false, "allow using the resources of others that the manifests name")
	cmd.Flags().StringVar(&o.discoveryInit, "discovery-init", "", "only what 'slipway iam init-discovery' of this s3:// URL needs")
	excludeFlags(cmd, "read-only", "state-init", "deletion", "discovery-init", "allow-existing")
	addFormatFlag(cmd, &o.format, formatTable, formatJSON, formatYAML)

	return cmd
}

// policyDocument is the output for one policy.
type policyDocument struct {
	Name       string           `json:"name"`
	Characters int              `json:"characters"`
	Document   iampolicy.Policy `json:"document"`
}

func (a *app) printOperatorPolicy(ctx context.Context, name string, o policyOptions) error {
	if err := clusterstate.CheckName(name); err != nil {
		return err
	}

	cfg, err := a.awsConfig(ctx, "")
	if err != nil {
		return err
	}

	in, err := permissions.BuildInput(ctx, a.newClusterEnv(), cfg, permissions.Request{
		Cluster:  name,
		Account:  o.account,
		ReadOnly: o.readOnly,

		CheckSigner: o.allowExisting,
	})
	if err != nil {
		return err
	}

	if !o.readOnly && !o.stateInit && !o.deletion && o.discoveryInit == "" {
		in = limitExisting(a, in, o.allowExisting)
	}

	label, docs, err := selectPolicies(ctx, cfg, in, o)
	if err != nil {
		return err
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

	return a.printPolicyTable(list)
}

// limitExisting leaves out the resources of others that the manifests name, unless they are allowed, and names them in both
// cases: who writes manifests chooses them.
func limitExisting(a *app, in iampolicy.Input, allowed bool) iampolicy.Input {
	rights := existingRights(in)
	for _, right := range rights {
		if allowed {
			a.printMessage("warning: operators may %s", right)
		} else {
			a.printMessage("left out: operators may not %s", right)
		}
	}

	if allowed || len(rights) == 0 {
		return in
	}

	a.printMessage("hint: if operators may do that, and you have read the manifests of cluster %s, give --allow-existing", in.Cluster)
	in.Existing = iampolicy.ExistingResources{}
	in.PeerVPCs = nil
	in.RouteTables = nil

	return in
}

// existingRights returns what operators may do with the resources of others that the manifests name.
func existingRights(in iampolicy.Input) []string {
	const named = ", which the manifest names"
	var out []string
	add := func(before string, names []string, after string) {
		for _, name := range names {
			out = append(out, before+name+named+after)
		}
	}
	if in.Existing.VPC != "" {
		add("create parts of the cluster in ", []string{in.Existing.VPC}, "")
	}

	add("start machines with ", in.Existing.ProfileRoles, ": they get all its permissions")
	add("attach ", in.Existing.ManagedPolicies, ", to roles of the cluster, within their boundary")
	add("start machines and load balancers in ", in.Existing.Subnets, "")
	add("start machines with ", in.Existing.SecurityGroups, "")
	add("give NAT gateways the address ", in.Existing.Addresses, "")
	add("peer with ", in.PeerVPCs, "")
	add("route from ", in.RouteTables, ", to the cluster")

	return out
}

// selectPolicies returns the policies that the options ask for, and the name that they begin with.
func selectPolicies(
	ctx context.Context,
	cfg aws.Config,
	in iampolicy.Input,
	o policyOptions,
) (string, []iampolicy.Policy, error) {
	label := "slipway-" + in.Cluster
	switch {
	case o.stateInit && len(in.Stores) == 0:
		return "", nil, withHint(errors.New("the state store is not on S3"), "give --state s3://bucket/prefix")
	case o.stateInit:
		doc := iampolicy.BuildStateInitPolicy(in, in.Stores[0])

		return "slipway-state-" + in.Stores[0].Bucket, []iampolicy.Policy{doc}, nil
	case o.deletion:
		doc, err := permissions.BuildDeletionPolicy(ctx, cfg, in)
		if err != nil {
			return "", nil, withHint(err, "the cluster must exist: the policy names its key")
		}

		return label + "-deletion", []iampolicy.Policy{doc}, nil
	case o.discoveryInit != "":
		at, err := store.ParseURL(o.discoveryInit)
		if err != nil || at.Bucket == "" {
			return "", nil, withHint(fmt.Errorf("%q is not an s3:// URL", o.discoveryInit), "give s3://bucket/prefix")
		}

		doc := iampolicy.BuildDiscoveryInitPolicy(in, iampolicy.StoreLocation{Bucket: at.Bucket})

		return "slipway-discovery-" + at.Bucket, []iampolicy.Policy{doc}, nil
	case o.readOnly:
		label += "-read"
	}

	return label, iampolicy.BuildPolicies(in), nil
}

// printPolicyTable prints the size of each policy.
func (a *app) printPolicyTable(list []policyDocument) error {
	w := tabwriter.NewWriter(a.Stdout, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w, "POLICY\tCHARACTERS\tSTATEMENTS\tACTIONS")

	for _, p := range list {
		fmt.Fprintf(
			w,
			"%s\t%d of %d\t%d\t%d\n",
			p.Name,
			p.Characters,
			iampolicy.MaxPolicySize,
			len(p.Document.Statement),
			len(iampolicy.AllowedActions([]iampolicy.Policy{p.Document})),
		)
	}

	return w.Flush()
}
