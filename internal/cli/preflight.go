// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/aws/discovery"
	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// exitFindings is what 'slipway preflight' exits with when an apply would go, but not without a warning.
const exitFindings = 2

// maxClockSkew is how far a clock may be off before AWS refuses signatures is five minutes; from one on it is worth a word.
const maxClockSkew = time.Minute

// dockerBridgeCIDR is Docker's own range: machines that run it lose the way to pods and services there.
const dockerBridgeCIDR = "172.17.0.0/16"

func newPreflightCommand(a *app) *cobra.Command {
	var o clusterOptions
	var format string
	cmd := &cobra.Command{
		Use:   "preflight [NAME]",
		Short: "Check the prerequisites of an apply",
		Long: `Check all prerequisites of an apply before it creates anything, and report all findings at once: STS answers and the clocks
agree, the state store can be read, the images exist and match their machine types, each machine type is offered in each zone
of its group, address ranges do not overlap, the account's quotas for VPCs, elastic IP addresses, vCPUs and security group
rules suffice, a public DNS zone is delegated, and IAM allows every action of 'slipway iam operator-policy' (by simulation).

Nothing is changed.

EXIT STATUS
  0  no findings
  1  an apply would fail, or a check failed
  2  warnings only`,
		Example: "  slipway preflight demo\n  slipway preflight demo -o json | jq '.findings[]'",
		GroupID: groupCluster,
		RunE: func(cmd *cobra.Command, args []string) error {
			fs, err := a.runPreflight(cmd.Context(), args, o)
			if err != nil {
				return err
			}

			return a.printPreflight(format, fs)
		},
	}

	addClusterFlags(cmd, &o)
	addFormatFlag(cmd, &format, formatTable, formatJSON, formatYAML)

	return cmd
}

// runPreflight makes every check, whatever the others find.
func (a *app) runPreflight(ctx context.Context, args []string, o clusterOptions) (diag.Findings, error) {
	name, err := a.clusterName(args, o.name)
	if err != nil {
		return nil, err
	}

	d, err := a.loadDesiredState(ctx, name) // reads the state store
	if err != nil {
		return nil, err
	}

	t, err := a.newClusterSession(ctx, o, name, d.manifests.Cluster.Spec.CloudProvider.AWS.Region)
	if err != nil {
		return nil, err
	}

	defer t.printCalls()
	fs := t.checkModel(ctx, d)
	fs = append(fs, t.checkClock(ctx)...)
	fs = append(fs, t.checkOfferings(ctx, d)...)
	fs = append(fs, checkAddressRanges(d)...)
	fs = append(fs, t.checkDelegation(ctx, d)...)
	fs = append(fs, t.checkPermissions(ctx, name)...)

	return fs, nil
}

// checkModel checks images, what the manifest names and slipway does not make, all that stands in the way of a plan, and,
// if nothing does, quotas.
func (t *clusterSession) checkModel(ctx context.Context, d *desiredState) (fs diag.Findings) {
	add := func(err error, path, hint string) {
		if found, ok := errors.AsType[diag.Findings](err); ok {
			fs = append(fs, found...)
		} else if err != nil {
			fs.Errorf(path, "", hint, "%s", err)
		}
	}

	_, imagesErr := t.resolveImages(ctx, d)
	add(imagesErr, "aws: images", "check spec.image of the groups, and the credentials")
	existingErr := t.readExternalResources(ctx, d)
	add(existingErr, "aws: what exists", "check the ids in the manifest, and the credentials")
	if imagesErr != nil || existingErr != nil {
		return fs
	}

	err := t.app.resolveMachineStore(ctx, d)
	if err == nil {
		err = t.buildGraph(ctx, d)
	}

	if err != nil {
		add(err, "cluster/"+t.name, "see: slipway plan "+t.name)
		return fs
	}

	return append(fs, t.checkQuotas(ctx, d.quotaNeeds())...)
}

func (t *clusterSession) checkClock(ctx context.Context) (fs diag.Findings) {
	skew, err := discovery.MeasureClockSkew(ctx, t.cfg)
	if err != nil {
		fs.Errorf(
			"aws: sts",
			t.cfg.Region,
			"check the network, the proxy and AWS_REGION",
			"does not answer: %s",
			err,
		)
	} else if skew.Abs() > maxClockSkew {
		fs.Warnf("aws: clock", skew.Round(time.Second).String(), "set this machine's clock by NTP", "differs from AWS's; from five minutes on AWS refuses every call")
	}

	return fs
}

func (t *clusterSession) checkOfferings(ctx context.Context, d *desiredState) (fs diag.Findings) {
	zones := map[string]string{}
	for _, s := range d.manifests.Cluster.Spec.Networking.Subnets {
		zones[s.Name] = s.Zone
	}

	types := map[string]bool{}

	for _, g := range d.manifests.Groups {
		for _, kind := range manifest.MachineTypes(g.Spec) {
			types[kind] = true
		}
	}

	offered, err := discovery.ListInstanceTypeZones(ctx, t.cfg, slices.Sorted(maps.Keys(types)))
	if err != nil {
		fs.Warnf(
			"aws: instance types",
			"",
			"allow ec2:DescribeInstanceTypeOfferings",
			"could not be checked: %s",
			err,
		)

		return fs
	}

	for _, g := range d.manifests.Groups {
		for _, zone := range groupZones(g, zones) {
			fs = append(fs, checkOffering(g, zone, offered)...)
		}
	}

	return fs
}

// checkOffering says that a zone lacks a group's type. One of several types is a warning: the group takes the others there.
func checkOffering(g v1alpha1.InstanceGroup, zone string, offered map[string][]string) (fs diag.Findings) {
	path := "instancegroup/" + g.Metadata.Name + ": spec."
	types := manifest.MachineTypes(g.Spec)
	lacking := []string(nil)

	for _, kind := range types {
		if !slices.Contains(offered[kind], zone) {
			lacking = append(lacking, kind)
		}
	}

	for _, kind := range lacking {
		hint := "it is offered in: " + strings.Join(slices.Sorted(slices.Values(offered[kind])), ", ")
		if len(lacking) < len(types) {
			fs.Warnf(path+"mixedInstancesPolicy.instances", kind, hint, "is not offered in %s", zone)
			continue
		}

		fs.Errorf(path+"machineType", kind, hint, "is not offered in %s", zone)
	}

	return fs
}

func groupZones(g v1alpha1.InstanceGroup, zones map[string]string) []string {
	var out []string
	for _, s := range g.Spec.Subnets {
		if z := zones[s]; z != "" && !slices.Contains(out, z) {
			out = append(out, z)
		}
	}

	return out
}

// checkAddressRanges warns of ranges that work in AWS, but not on every machine.
func checkAddressRanges(d *desiredState) (fs diag.Findings) {
	docker := netip.MustParsePrefix(dockerBridgeCIDR)
	n := d.manifests.Cluster.Spec.Networking
	for _, r := range []struct{ path, cidr string }{
		{"spec.networking.networkCIDR", n.NetworkCIDR}, {"spec.networking.podCIDR", n.PodCIDR}, {"spec.networking.serviceClusterIPRange", n.ServiceClusterIPRange},
	} {
		if p, err := netip.ParsePrefix(r.cidr); err == nil && p.Overlaps(docker) {
			fs.Warnf(
				"cluster/"+d.manifests.Cluster.Metadata.Name+": "+r.path,
				r.cidr,
				"take a range outside "+dockerBridgeCIDR,
				"overlaps Docker's bridge: who runs Docker does not reach it",
			)
		}
	}

	return fs
}

// checkPermissions asks IAM about every statement of the operator's policy, with the conditions that it has.
func (t *clusterSession) checkPermissions(ctx context.Context, name string) (fs diag.Findings) {
	cannot := func(err error) diag.Findings {
		fs.Warnf(
			"aws: permissions",
			"",
			"allow iam:SimulatePrincipalPolicy on the caller itself, or compare with: slipway iam operator-policy "+name,
			"could not be checked: %s",
			err,
		)

		return fs
	}

	who, err := t.callerIdentity(ctx)
	if err != nil {
		return cannot(err)
	}

	principal, err := discovery.ResolvePrincipal(ctx, t.cfg, who.ARN)
	if err != nil {
		return cannot(err)
	}

	if principal == "" {
		return nil // the account's root
	}

	in, err := t.app.buildPolicyInput(ctx, name, policyOptions{})
	if err != nil {
		return cannot(err)
	}

	var questions []discovery.PermissionCheck

	for _, p := range iampolicy.BuildPolicies(in) {
		for _, s := range p.Statement {
			questions = append(
				questions,
				discovery.PermissionCheck{
					Actions:   s.Action,
					Resources: s.ExampleResources(),
					Context:   s.ConditionKeys(),
				},
			)
		}
	}

	denied, err := discovery.FindDeniedActions(ctx, t.cfg, principal, questions)
	if err != nil {
		return cannot(err)
	}

	for _, d := range denied {
		fs.Errorf(
			"aws: permissions",
			d,
			"attach the policies of: slipway iam operator-policy "+name,
			"is not allowed to %s",
			principal,
		)
	}

	return fs
}

func (a *app) printPreflight(format string, fs diag.Findings) error {
	failed := slices.ContainsFunc(fs, func(f diag.Finding) bool { return f.Severity == diag.Error })
	switch {
	case format != formatTable:
		type finding struct {
			Severity string `json:"severity"`
			Field    string `json:"field"`
			Value    string `json:"value,omitempty"`
			Finding  string `json:"finding"`
			Fix      string `json:"fix,omitempty"`
		}

		list := []finding{}
		for _, f := range fs {
			list = append(list, finding{string(f.Severity), f.Path, f.Value, f.Message, f.Hint})
		}

		if err := a.printValue(format, map[string]any{"findings": list}); err != nil {
			return err
		}

	case len(fs) == 0:
		fmt.Fprintln(a.Stdout, "all is well")
	default:
		w := tabwriter.NewWriter(a.Stdout, 0, 8, 3, ' ', 0)
		fmt.Fprintln(w, "SEVERITY\tFIELD\tVALUE\tFINDING\tFIX")
		for _, f := range fs {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", f.Severity, f.Path, f.Value, f.Message, f.Hint)
		}

		if err := w.Flush(); err != nil {
			return fmt.Errorf("print findings: %w", err)
		}
	}

	switch {
	case failed:
		return Exit{exitError}
	case len(fs) > 0:
		return Exit{exitFindings}
	}

	return nil
}
