// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/manifests"
	"github.com/slipway-k8s/slipway/internal/infra/aws/discovery"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// formatPod is the format of 'slipway iam service-account get' that prints a part of a pod.
const formatPod = "pod"

// Where a pod's token is mounted in its containers, and its lifetime in seconds. The kubelet renews it in time.
const (
	mountFolder    = "/var/run/secrets/sts.amazonaws.com/serviceaccount"
	renewalSeconds = 3600
)

// rolesOfPods are the service accounts with an IAM role, as in the manifest.
type rolesOfPods = []v1alpha1.ServiceAccountPermissions

// serviceAccountOptions are the flags of 'slipway iam service-account'.
type serviceAccountOptions struct {
	name       string // of the cluster
	namespace  string
	policyFile string
	policyARNs []string
	format     string
}

func newServiceAccountCommand(a *app) *cobra.Command {
	cmd := newGroupCommand(
		"service-account",
		"Manage the IAM roles of service accounts",
		"",
		newServiceAccountCreateCommand(a),
		newServiceAccountGetCommand(a),
		newServiceAccountDeleteCommand(a),
	)
	cmd.Aliases = []string{"sa", "serviceaccount"}

	return cmd
}

// addServiceAccountFlags adds the flags of all commands about service accounts.
func addServiceAccountFlags(cmd *cobra.Command, o *serviceAccountOptions) {
	addNameFlag(cmd, &o.name)
	cmd.Flags().StringVarP(
		&o.namespace, "namespace", "n", "default",
		"namespace of the service account",
	)
}

func newServiceAccountCreateCommand(a *app) *cobra.Command {
	var o serviceAccountOptions
	cmd := &cobra.Command{
		Use:     "create SERVICE_ACCOUNT",
		Aliases: []string{"set"},
		Short:   "Add the IAM role of a service account to the manifest",
		Long: `Add the IAM role of a service account to spec.iam.serviceAccountExternalPermissions of the Cluster manifest, or change its
permissions. The change is shown first. 'slipway apply' then creates the role, which only tokens of this service account can
assume. The service account itself need not exist.

The permissions boundary of the state store limits the role as well: an administrator adds to it what pods may do.` +
			exitStatusHelp(),
		Example: "  slipway iam service-account create reader -n shop --policy-file reader.json --name demo\n" +
			"  slipway iam service-account create reader -n shop --policy-arn arn:aws:iam::123456789012:policy/read --name demo --yes",
		Args: requireOneArgument("SERVICE_ACCOUNT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			permissions, err := o.readPermissions(args[0])
			if err != nil {
				return err
			}

			return serviceAccountManager{a}.changeServiceAccounts(cmd.Context(), o, func(list rolesOfPods) (rolesOfPods, error) {
				if i := o.findIn(list, args[0]); i >= 0 {
					list[i] = permissions
					return list, nil
				}

				return append(list, permissions), nil
			})
		},
	}

	addServiceAccountFlags(cmd, &o)
	cmd.Flags().StringVar(
		&o.policyFile, "policy-file", "",
		"file with a policy document in JSON, of at most 8192 bytes",
	)
	cmd.Flags().StringArrayVar(
		&o.policyARNs, "policy-arn", nil,
		"ARN of a managed policy; can be repeated",
	)
	a.addYesFlag(cmd)
	a.addLockFlag(cmd)

	return cmd
}

func newServiceAccountDeleteCommand(a *app) *cobra.Command {
	var o serviceAccountOptions
	cmd := &cobra.Command{
		Use:   "delete SERVICE_ACCOUNT",
		Short: "Remove the IAM role of a service account from the manifest",
		Long: `Remove the IAM role of a service account from the Cluster manifest. The change is shown first. 'slipway apply' then deletes
the role: pods that use it lose their permissions at once.` + exitStatusHelp(),
		Example: "  slipway iam service-account delete reader -n shop --name demo --yes",
		Args:    requireOneArgument("SERVICE_ACCOUNT"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return serviceAccountManager{a}.changeServiceAccounts(cmd.Context(), o, func(list rolesOfPods) (rolesOfPods, error) {
				i := o.findIn(list, args[0])
				if i < 0 {
					return nil, o.newNotFoundError(args[0])
				}

				return slices.Delete(list, i, i+1), nil
			})
		},
	}

	addServiceAccountFlags(cmd, &o)
	a.addYesFlag(cmd)
	a.addLockFlag(cmd)

	return cmd
}

func newServiceAccountGetCommand(a *app) *cobra.Command {
	var o serviceAccountOptions
	cmd := &cobra.Command{
		Use:   "get [SERVICE_ACCOUNT]",
		Short: "List the IAM roles of service accounts",
		Long: `List the IAM roles of service accounts in the manifest of a cluster: all, or that of SERVICE_ACCOUNT in --namespace. -o pod
prints what a pod needs to use the role of its service account: environment variables for the SDKs of AWS, and a volume with
a token that the kubelet renews.` + exitStatusHelp(),
		Example: "  slipway iam service-account get --name demo\n  slipway iam service-account get reader -n shop --name demo -o pod",
		Args:    allowOneArgument,
		RunE: func(cmd *cobra.Command, args []string) error {
			return serviceAccountManager{a}.getServiceAccounts(cmd.Context(), o, args)
		},
	}

	addServiceAccountFlags(cmd, &o)
	addFormatFlag(cmd, &o.format, formatTable, formatJSON, formatYAML, formatPod)

	return cmd
}

// readPermissions returns the permissions that the flags give to a service account.
func (o serviceAccountOptions) readPermissions(name string) (v1alpha1.ServiceAccountPermissions, error) {
	out := v1alpha1.ServiceAccountPermissions{
		Name:      name,
		Namespace: o.namespace,
		AWS:       v1alpha1.ServiceAccountAWS{PolicyARNs: o.policyARNs},
	}
	if o.policyFile == "" {
		if len(o.policyARNs) == 0 {
			return out, withHint(errors.New("no permissions are given"), "give --policy-file FILE or --policy-arn ARN")
		}

		return out, nil
	}

	text, err := os.ReadFile(o.policyFile)
	if err != nil {
		return out, fmt.Errorf("read the policy: %w", err)
	}

	out.AWS.InlinePolicy = string(text)

	return out, nil
}

// findIn returns the index of a service account in a list; -1 if it is not there.
func (o serviceAccountOptions) findIn(list []v1alpha1.ServiceAccountPermissions, name string) int {
	return slices.IndexFunc(list, func(p v1alpha1.ServiceAccountPermissions) bool {
		return p.Name == name && p.Namespace == o.namespace
	})
}

func (o serviceAccountOptions) newNotFoundError(name string) error {
	return withHint(
		fmt.Errorf("service account %s/%s has no IAM role in the manifest", o.namespace, name),
		"give --namespace; list the roles with: slipway iam service-account get",
	)
}

// serviceAccountManager edits and prints the IAM roles of service accounts.
type serviceAccountManager struct{ *app }

// changeServiceAccounts changes the list of service accounts with an IAM role in the manifest, after confirmation.
func (a serviceAccountManager) changeServiceAccounts(
	ctx context.Context,
	o serviceAccountOptions,
	change func(rolesOfPods) (rolesOfPods, error),
) error {
	name, err := clusterOfFlag(a.app, o.name)
	if err != nil {
		return err
	}

	s, _, err := a.stores().State(ctx)
	if err != nil {
		return err
	}

	c, err := manifests.LoadChange(ctx, s, name, "")
	if err != nil {
		return err
	}

	given := manifest.Set{Cluster: c.Before().Cluster}
	roles := &given.Cluster.Spec.IAM.ServiceAccountExternalPermissions
	if *roles, err = change(slices.Clone(*roles)); err != nil {
		return err
	}

	after, findings := c.Check(given, nil)
	if err := findings.Err(); err != nil {
		return err
	}

	a.printFindings(findings)
	a.printPermissions(c.Before().Cluster.Spec.IAM.ServiceAccountExternalPermissions, *roles)

	return a.confirmAndChange(ctx, c, "replace", after)
}

// printPermissions prints the permissions that change, in full: the difference of manifests shortens them.
func (a serviceAccountManager) printPermissions(before, after []v1alpha1.ServiceAccountPermissions) {
	lines := func(list []v1alpha1.ServiceAccountPermissions) []string {
		var out []string
		for _, p := range list {
			for _, arn := range p.AWS.PolicyARNs {
				out = append(out, fmt.Sprintf("service account %s/%s: %s", p.Namespace, p.Name, arn))
			}

			if p.AWS.InlinePolicy != "" {
				policy := graph.CanonicalJSON(p.AWS.InlinePolicy)
				out = append(out, fmt.Sprintf("service account %s/%s: %s", p.Namespace, p.Name, policy))
			}
		}

		return out
	}
	had := lines(before)
	has := lines(after)

	for _, line := range had {
		if !slices.Contains(has, line) {
			a.printMessage("- %s", line)
		}
	}

	for _, line := range has {
		if !slices.Contains(had, line) {
			a.printMessage("+ %s", line)
		}
	}
}

// serviceAccountRole is the output for one service account.
type serviceAccountRole struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	RoleARN   string `json:"roleARN"`
}

func (a serviceAccountManager) getServiceAccounts(ctx context.Context, o serviceAccountOptions, args []string) error {
	name, err := clusterOfFlag(a.app, o.name)
	if err != nil {
		return err
	}

	s, _, err := a.stores().State(ctx)
	if err != nil {
		return err
	}

	set, err := clusterstate.LoadManifests(ctx, s, name)
	if err != nil {
		return err
	}

	list := set.Cluster.Spec.IAM.ServiceAccountExternalPermissions
	if len(args) > 0 {
		i := o.findIn(list, args[0])
		if i < 0 {
			return o.newNotFoundError(args[0])
		}

		list = list[i : i+1]
	}

	region := set.Cluster.Spec.CloudProvider.AWS.Region
	cfg, err := a.awsConfig(ctx, region)
	if err != nil {
		return err
	}

	who, err := discovery.GetCallerIdentity(ctx, cfg)
	if err != nil {
		return err
	}

	roles := []serviceAccountRole{}
	for _, p := range list {
		roles = append(roles, serviceAccountRole{
			Namespace: p.Namespace,
			Name:      p.Name,
			RoleARN:   model.ServiceAccountRoleARN(who.Partition, who.Account, set.Cluster, p),
		})
	}

	return a.printServiceAccounts(o.format, region, roles)
}

func (a serviceAccountManager) printServiceAccounts(format, region string, roles []serviceAccountRole) error {
	switch {
	case format == formatPod && len(roles) != 1:
		return withHint(errors.New("-o pod is for one service account"), "give its name and --namespace")
	case format == formatPod:
		return a.printValue(formatYAML, newPodPart(region, roles[0]))
	case format != formatTable:
		return a.printValue(format, roles)
	}

	if len(roles) == 0 {
		a.printMessage("no service account has an IAM role")
		return nil
	}

	var rows [][]string
	for _, r := range roles {
		rows = append(rows, []string{r.Namespace, r.Name, r.RoleARN})
	}

	a.printTable([]string{"NAMESPACE", "SERVICE ACCOUNT", "ROLE"}, rows)

	return nil
}

// newPodPart returns the part of a pod with which its container assumes the role of its service account.
func newPodPart(region string, role serviceAccountRole) map[string]any {
	const volume = "aws-token"
	variable := func(name, value string) map[string]string { return map[string]string{"name": name, "value": value} }

	return map[string]any{"spec": map[string]any{
		"serviceAccountName": role.Name,
		"containers": []any{map[string]any{
			"name": "CONTAINER",
			"env": []any{
				variable("AWS_REGION", region),
				variable("AWS_ROLE_ARN", role.RoleARN),
				variable("AWS_WEB_IDENTITY_TOKEN_FILE", mountFolder+"/token"),
			},
			"volumeMounts": []any{map[string]any{"name": volume, "mountPath": mountFolder, "readOnly": true}},
		}},
		"volumes": []any{map[string]any{
			"name": volume,
			"projected": map[string]any{"sources": []any{map[string]any{"serviceAccountToken": map[string]any{
				"audience":          model.STSAudience,
				"expirationSeconds": renewalSeconds,
				"path":              "token",
			}}}},
		}},
	}}
}
