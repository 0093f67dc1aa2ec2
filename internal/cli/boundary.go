// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/permissions"
	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
)

// boundaryOptions are the flags of 'slipway iam boundary'.
type boundaryOptions struct {
	name, account, format string
	karpenter             bool
}

func newBoundaryCommand(a *app) *cobra.Command {
	var o boundaryOptions
	cmd := &cobra.Command{
		Use:   "boundary [NAME]",
		Short: "Print the permissions boundary of machines, and whether AWS has it",
		Long: `Print the permissions boundary of the IAM roles of machines, as this version of Slipway needs it, and compare it with the one in AWS.
'slipway state init' creates the boundary and never changes it, so an administrator updates it after an upgrade of Slipway. With
NAME, it is that of the machine store of the cluster; otherwise of the state store. Images can be pulled from the private registries in
Amazon ECR of the account, and of those other accounts that the manifest of NAME names; without NAME, the manifests of all clusters. Such
manifests must be signed by the authority of their cluster, whose key is opened for that. What others name is left out, with a warning.

With --karpenter, it is the boundary of the roles of Karpenter, for clusters with a group with spec.manager Karpenter. A state store
of an earlier version has none: create it with 'aws iam create-policy --path /slipway/'.

The document keeps the statements that an administrator added to the boundary in AWS: those whose Sid is none of Slipway's. With
--account, AWS is not read, and the document has Slipway's statements only.

-o json prints {"name", "arn", "state", "outdated", "added", "characters", "document"}.` + exitStatusHelp("2  the boundary in AWS is missing or outdated"),
		Example: `  slipway iam boundary
  slipway iam boundary -o json | jq .document > boundary.json
  aws iam create-policy-version --set-as-default --policy-document file://boundary.json \
    --policy-arn $(slipway iam boundary -o json | jq -r .arn)`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return printBoundary(cmd.Context(), a, args, o)
		},
	}

	addNameFlag(cmd, &o.name)
	cmd.Flags().StringVar(&o.account, "account", "", "AWS account ID, 12 digits: do not read AWS")
	cmd.Flags().BoolVar(&o.karpenter, "karpenter", false, "print the boundary of the roles of Karpenter")
	addFormatFlag(cmd, &o.format, formatTable, formatJSON, formatYAML)

	return cmd
}

// boundaryDocument is the output of 'slipway iam boundary'.
type boundaryDocument struct {
	Name       string                       `json:"name"`
	ARN        string                       `json:"arn"`
	State      string                       `json:"state"`
	Outdated   []string                     `json:"outdated,omitempty"`
	Added      []string                     `json:"added,omitempty"`
	Characters int                          `json:"characters"`
	Document   permissions.BoundaryDocument `json:"document"`
}

// printBoundary prints the boundary for the machines of a cluster, or of all clusters of the state store.
func printBoundary(ctx context.Context, a *app, args []string, o boundaryOptions) error {
	name, err := a.clusterName(args, o.name)
	if errors.Is(err, errNoCluster) {
		name, err = "", nil
	} else if err == nil {
		err = clusterstate.CheckName(name)
	}

	if err != nil {
		return err
	}

	cfg, err := a.awsConfig(ctx, "")
	if err != nil {
		return err
	}

	in, err := permissions.BuildBoundaryInput(ctx, a.newClusterEnv(), cfg, name, o.account)
	if err != nil {
		return err
	}

	if len(in.Stores) == 0 {
		return withHint(
			errors.New("the machine store is not on S3, so machines have no IAM roles"),
			"give --state s3://bucket/prefix",
		)
	}

	bucket := in.Stores[len(in.Stores)-1].Bucket
	policy := iampolicy.BoundaryName(bucket)
	if o.karpenter {
		in.IsKarpenterBoundary = true
		in.Boundary = in.KarpenterBoundary
		policy = iampolicy.KarpenterBoundaryName(bucket)
	}

	found, err := findBoundary(ctx, cfg, in, o.account == "")
	if err != nil {
		return err
	}

	return printBoundaryDocument(a, o.format, boundaryDocument{
		Name:       policy,
		ARN:        in.Boundary,
		State:      found.State,
		Outdated:   found.Outdated,
		Added:      found.Added,
		Characters: found.Document.Size(),
		Document:   found.Document,
	})
}

// findBoundary returns the boundary, compared with the one in AWS if reads is set.
func findBoundary(ctx context.Context, cfg aws.Config, in iampolicy.Input, reads bool) (permissions.Boundary, error) {
	if !reads {
		return permissions.BuildBoundary(in)
	}

	found, err := permissions.ReadBoundary(ctx, cfg, in)
	if err != nil {
		return found, withHint(err, "use the credentials of an administrator, or give --account to print it without reading AWS")
	}

	return found, nil
}

// printBoundaryDocument prints the boundary. The error has the exit code if AWS lacks it or a part of it.
func printBoundaryDocument(a *app, format string, d boundaryDocument) error {
	if format != formatTable {
		if err := a.printValue(format, d); err != nil {
			return err
		}
	} else if err := printBoundaryTable(a, d); err != nil {
		return err
	}

	if d.State == permissions.BoundaryMissing || d.State == permissions.BoundaryOutdated {
		return ExitError{exitFindings}
	}

	return nil
}

func printBoundaryTable(a *app, d boundaryDocument) error {
	w := tabwriter.NewWriter(a.Stdout, 0, 8, 3, ' ', 0)
	fmt.Fprintln(w, "POLICY\tCHARACTERS\tSTATE\tOUTDATED STATEMENTS\tADDED STATEMENTS")
	fmt.Fprintf(
		w,
		"%s\t%d of %d\t%s\t%s\t%s\n",
		d.ARN,
		d.Characters,
		iampolicy.MaxPolicySize,
		d.State,
		orDash(strings.Join(d.Outdated, ", ")),
		orDash(strings.Join(d.Added, ", ")),
	)

	return w.Flush()
}
