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
		newRotateTokenKeyCommand(a),
	)
}

// policyOptions are the flags of 'slipway iam operator-policy'.
type policyOptions struct {
	name, account, format string
	readOnly, stateInit   bool
	deletion, stack       bool
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

If it exists, its manifests add what their fields need, and must be signed. Operators write manifests, so what these name outside of
the cluster is left out and named on standard error: the role of an existing instance profile, a managed policy, a VPC, hosted zones, another
store of the machines, the issuer of roles for pods. --allow-existing adds it. It checks that an operator of the cluster has signed the
manifests, for which it opens the key of the cluster's authority.

A managed policy has at most 6,144 characters, so there may be several documents: attach all of them. --read-only is enough
for the commands that only read. --state-init is for 'slipway state init', once. --deletion is for 'slipway delete cluster
--destroy-data', in addition to the policies without a flag: it names the KMS key of the existing cluster. --stack is for a
cluster that CloudFormation creates, in addition to the policies without a flag. --discovery-init is for 'slipway iam
init-discovery', once.

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
	cmd.Flags().BoolVar(
		&o.readOnly, "read-only", false,
		"only what commands that read need: no change, no key",
	)
	cmd.Flags().BoolVar(&o.stateInit, "state-init", false, "only what 'slipway state init' needs")
	cmd.Flags().BoolVar(
		&o.deletion, "deletion", false,
		"only the deletion of the cluster's KMS key",
	)
	cmd.Flags().BoolVar(
		&o.stack, "stack", false,
		"only what the cluster's CloudFormation stack needs in addition",
	)
	cmd.Flags().BoolVar(
		&o.allowExisting, "allow-existing", false,
		"allow what the manifests name outside of the cluster",
	)
	cmd.Flags().StringVar(
		&o.discoveryInit, "discovery-init", "",
		"only what 'slipway iam init-discovery' of this s3:// URL needs",
	)
	excludeFlags(cmd, "read-only", "state-init", "deletion", "stack", "discovery-init")
	excludeFlags(cmd, "allow-existing", "state-init", "deletion", "stack", "discovery-init")
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

	in, elsewhere, err := permissions.BuildInput(ctx, a.newClusterEnv(), cfg, permissions.Request{
		Cluster:   name,
		Account:   o.account,
		ReadOnly:  o.readOnly,
		Manifests: o.manifests(),
	})
	if err != nil {
		return err
	}

	printElsewhere(a, name, elsewhere, o)
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

// manifests returns how the manifests shape the policies.
func (o policyOptions) manifests() permissions.Manifests {
	switch {
	case o.stateInit, o.deletion, o.stack, o.discoveryInit != "":
		return permissions.NoManifests
	case o.allowExisting:
		return permissions.CheckedManifests
	}

	return permissions.LimitedManifests
}

// printElsewhere names what the manifests name outside of the cluster, which is left out unless it is allowed: who writes
// manifests chooses it.
func printElsewhere(a *app, cluster string, rights []string, o policyOptions) {
	who := "operators"
	if o.readOnly {
		who = "readers"
	}

	for _, right := range rights {
		if o.allowExisting {
			a.printMessage("warning: %s may %s", who, right)
		} else {
			a.printMessage("left out: %s may not %s", who, right)
		}
	}

	if len(rights) > 0 && !o.allowExisting {
		a.printMessage("hint: if %s may do that, and you have read the manifests of cluster %s, give --allow-existing", who, cluster)
	}
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
	case o.stack:
		return label + "-stack", []iampolicy.Policy{iampolicy.BuildStackPolicy(in)}, nil
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
