// SPDX-License-Identifier: Apache-2.0

// Package preflight checks, without changing anything, whether an apply would fail: for images, quotas,
// machine types, address ranges, DNS delegation and the caller's permissions.
package preflight

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/permissions"
	"github.com/slipway-k8s/slipway/internal/infra/aws/discovery"
	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/infra/quota"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// maxClockSkew is the clock difference that is worth a warning. From five minutes on AWS refuses signatures.
const maxClockSkew = time.Minute

// checkModel checks the images, the resources that the manifest names by id, and everything else that prevents
// a plan. It builds the graph if nothing does.
func checkModel(ctx context.Context, session *cluster.Session, d *cluster.Desired) (fs diag.Findings) {
	add := func(err error, path, hint string) {
		if found, ok := errors.AsType[diag.Findings](err); ok {
			fs = append(fs, found...)
		} else if err != nil {
			fs.Errorf(path, "", hint, "%s", err)
		}
	}

	if err := session.DescribeInstanceTypes(ctx, d); err != nil {
		add(err, "aws: instance types", "check spec.machineType of the groups, and the credentials")
		return fs
	}

	_, imagesErr := session.ResolveImages(ctx, d)
	add(imagesErr, "aws: images", "check spec.image of the groups, and the credentials")
	existingErr := session.ReadExternalResources(ctx, d)
	add(existingErr, "aws: existing resources", "check the ids in the manifest, and the credentials")
	if imagesErr != nil || existingErr != nil {
		return fs
	}

	err := session.ResolveMachineStore(ctx, d)
	if err == nil {
		err = session.BuildGraph(ctx, d)
	}

	add(err, "cluster/"+session.Name, "see: slipway plan "+session.Name)

	return fs
}

// checkOwnership checks that AWS has no resources of another cluster of the same name. It returns the cluster's
// resources.
func checkOwnership(
	ctx context.Context,
	session *cluster.Session,
	d *cluster.Desired,
) (actual []plan.ActualResource, fs diag.Findings) {
	actual, err := session.ReadResources(ctx, d.View, d.Manifests)
	if err == nil {
		return actual, nil
	}

	hint := "check the credentials and the permissions: slipway iam operator-policy " + session.Name
	if hints := diag.Hints(err); len(hints) > 0 {
		hint = hints[0]
	}

	fs.Errorf("aws: resources", "", hint, "%s", err)

	return nil, fs
}

// checkQuotas compares the graph with the account's quotas. Without the cluster's resources in AWS it leaves out the
// quotas that need them: the cluster's own would count as those of others.
func checkQuotas(
	ctx context.Context,
	session *cluster.Session,
	d *cluster.Desired,
	existing []plan.ActualResource,
	isRead bool,
) diag.Findings {
	needs := slices.DeleteFunc(
		d.QuotaNeeds(),
		func(n quota.Requirement) bool { return n.NeedsResources && !isRead },
	)

	return session.CheckQuotas(ctx, needs, existing)
}

// checkClock checks that STS answers and that its clock and ours agree.
func checkClock(ctx context.Context, session *cluster.Session) (fs diag.Findings) {
	skew, err := discovery.MeasureClockSkew(ctx, session.Config)
	if err != nil {
		fs.Errorf(
			"aws: sts",
			session.Config.Region,
			"check the network, the proxy and AWS_REGION",
			"does not answer: %s",
			err,
		)
	} else if skew.Abs() > maxClockSkew {
		fs.Warnf(
			"aws: clock",
			skew.Round(time.Second).String(),
			"set this machine's clock by NTP",
			"differs from the clock of AWS, which refuses all calls from five minutes on",
		)
	}

	return fs
}

// checkAddressRanges warns of address ranges that work in AWS, but not on every machine.
func checkAddressRanges(d *cluster.Desired) (fs diag.Findings) {
	docker := netip.MustParsePrefix(dockerBridgeCIDR)
	n := d.Manifests.Cluster.Spec.Networking
	for _, r := range []struct{ path, cidr string }{
		{"spec.networking.networkCIDR", n.NetworkCIDR},
		{"spec.networking.podCIDR", n.PodCIDR},
		{"spec.networking.serviceClusterIPRange", n.ServiceClusterIPRange},
	} {
		if p, err := netip.ParsePrefix(r.cidr); err == nil && p.Overlaps(docker) {
			fs.Warnf(
				"cluster/"+d.Manifests.Cluster.Metadata.Name+": "+r.path,
				r.cidr,
				"use a range outside "+dockerBridgeCIDR,
				"overlaps Docker's bridge: machines that run Docker cannot reach it",
			)
		}
	}

	return fs
}

// dockerBridgeCIDR is the range of Docker's bridge: machines that run Docker cannot reach pods and services
// in it.
const dockerBridgeCIDR = "172.17.0.0/16"

// checkPermissions has IAM simulate every statement of the operator's policy, with the conditions of the
// statement.
func checkPermissions(ctx context.Context, session *cluster.Session) (fs diag.Findings) {
	cannot := func(err error) diag.Findings {
		fs.Warnf(
			"aws: permissions",
			"",
			"allow iam:SimulatePrincipalPolicy on the caller itself, or compare with: "+
				"slipway iam operator-policy "+session.Name,
			"could not be checked: %s",
			err,
		)

		return fs
	}

	who, err := session.CallerIdentity(ctx)
	if err != nil {
		return cannot(err)
	}

	principal, err := discovery.ResolvePrincipal(ctx, session.Config, who.ARN)
	if err != nil {
		return cannot(err)
	}

	if principal == "" {
		return nil // the account's root
	}

	in, _, err := permissions.BuildInput(
		ctx,
		session.Env,
		session.Config,
		permissions.Request{Cluster: session.Name, Manifests: permissions.AnyManifests},
	)
	if err != nil {
		return cannot(err)
	}

	denied, err := discovery.FindDeniedActions(ctx, session.Config, principal, permissionChecks(in))
	if err != nil {
		return cannot(err)
	}

	for _, d := range denied {
		fs.Errorf(
			"aws: permissions",
			d,
			"attach the policies of: slipway iam operator-policy "+session.Name+
				"; for what its manifests name outside of the cluster with --allow-existing",
			"is not allowed to %s",
			principal,
		)
	}

	return fs
}

// checkDelegation queries the DNS for the NS records that delegate to the cluster's public zone.
func checkDelegation(ctx context.Context, session *cluster.Session, d *cluster.Desired) (fs diag.Findings) {
	c := d.Manifests.Cluster
	if c.Spec.Topology.DNS.Type != manifest.DNSPublic {
		return nil
	}

	at := "cluster/" + c.Metadata.Name + ": spec.dnsZone"
	zone, servers, err := discovery.ReadNameServers(ctx, session.Config, c)

	switch {
	case err != nil:
		fs.Warnf(
			at,
			c.Spec.DNSZone,
			"allow route53:ListHostedZones and route53:GetHostedZone",
			"could not be read: %s",
			err,
		)

		return fs

	case len(servers) == 0:
		fs.Warnf(
			at,
			c.Spec.DNSZone,
			"rerun preflight after the first apply: it lists the name servers",
			"does not exist yet, so nothing can be delegated to it",
		)

		return fs
	}

	ctx, cancel := context.WithTimeout(ctx, dnsTimeout)
	defer cancel()
	hint := "delegate it in the parent zone by NS records: " + strings.Join(servers, ", ")
	found, err := session.Env.Resolver.LookupNS(ctx, zone)
	if err != nil {
		fs.Warnf(at, zone, hint, "is not delegated: the DNS has no NS records of it")
		return fs
	}

	var wrong []string

	for _, ns := range found {
		if host := strings.ToLower(strings.TrimSuffix(ns.Host, ".")); !slices.Contains(servers, host) {
			wrong = append(wrong, host)
		}
	}

	if len(wrong) > 0 {
		fs.Warnf(
			at,
			zone,
			hint,
			"is delegated to %s, which are not its name servers",
			strings.Join(wrong, ", "),
		)
	}

	return fs
}

// dnsTimeout limits a query to the DNS.
const dnsTimeout = 5 * time.Second

// Run makes all checks of a cluster, whatever the others find, and returns their findings. An error says
// that the checks could not be made.
func Run(ctx context.Context, env *cluster.Env, name string) (diag.Findings, error) {
	d, err := cluster.Load(ctx, env, name)
	if err != nil {
		return nil, err
	}

	session, err := d.OpenSession(ctx, env)
	if err != nil {
		return nil, err
	}

	existing, findings := checkOwnership(ctx, session, d)
	isRead := findings.Err() == nil
	modelFindings := checkModel(ctx, session, d)
	findings = append(findings, modelFindings...)
	if modelFindings.Err() == nil {
		findings = append(findings, checkQuotas(ctx, session, d, existing, isRead)...)
	}

	findings = append(findings, checkClock(ctx, session)...)
	findings = append(findings, checkOfferings(ctx, session, d)...)
	findings = append(findings, checkAddressRanges(d)...)
	findings = append(findings, checkDelegation(ctx, session, d)...)
	findings = append(findings, checkPermissions(ctx, session)...)

	return findings, nil
}

// permissionChecks returns one check for each statement of the operator's policies.
func permissionChecks(in iampolicy.Input) []discovery.PermissionCheck {
	var checks []discovery.PermissionCheck

	for _, p := range iampolicy.BuildPolicies(in) {
		for _, s := range p.Statement {
			checks = append(checks, discovery.PermissionCheck{
				Actions:   s.Action,
				Resources: s.ExampleResources(),
				Context:   s.ConditionKeys(),
			})
		}
	}

	return checks
}
