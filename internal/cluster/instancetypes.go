// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"strings"

	"github.com/slipway-k8s/slipway/internal/infra/aws/discovery"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// DescribeInstanceTypes has EC2 describe, once, the machine types of d that the embedded list does not
// contain; it makes no call if there are none. Types that do not exist, or that contradict other fields, are
// an error of type [diag.Findings]. If the caller may not ask, the types count as their names say.
func (session *Session) DescribeInstanceTypes(ctx context.Context, d *Desired) error {
	unknown := d.Manifests.UnknownTypes()
	if len(unknown) == 0 || d.Manifests.DescribedTypes != nil {
		return nil
	}

	described, err := discovery.DescribeInstanceTypes(ctx, session.Config, unknown)
	if plan.ErrorClassOf(err) == plan.AccessDenied {
		var fs diag.Findings
		fs.Warnf("aws: instance types", strings.Join(unknown, ", "),
			"allow ec2:DescribeInstanceTypes: slipway iam operator-policy "+session.Name,
			"could not be looked up, so their architecture is derived from their names: %s", err)
		session.Env.Warn(fs)

		return nil
	}

	if err != nil {
		return err
	}

	set, findings := d.Manifests.WithDescribedTypes(unknown, described)
	if err := findings.Err(); err != nil {
		return err
	}

	d.Manifests = set
	session.notifyOfTypes(described)
	session.Env.Warn(findings)

	return nil
}

// notifyOfTypes shows what EC2 described.
func (session *Session) notifyOfTypes(described []manifest.InstanceType) {
	for _, t := range described {
		session.Env.Notifyf("EC2 describes %s", t)
	}
}
