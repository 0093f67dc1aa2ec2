// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// GroupsBehind returns the names of the groups that launch machines from an earlier version of their launch template than
// the newest one, sorted: a rollback has returned them to it, and an apply gives them the newest one again.
func GroupsBehind(ctx context.Context, session *cluster.Session, state store.Store) ([]string, error) {
	owner, _, err := clusterstate.ReadOwnership(ctx, state, session.Name)
	if err != nil {
		return nil, err
	}

	return newAWSMachines(session.Config, session.Name, owner, session.Env.Now).groupsBehind(ctx)
}

func (a *awsMachines) groupsBehind(ctx context.Context) ([]string, error) {
	groups, _, err := a.List(ctx)
	if err != nil {
		return nil, err
	}

	var out []string
	for _, g := range groups {
		id := templateID(a.scalingGroup(g.Name, g.Slot))
		version, err := strconv.ParseInt(g.Version, 10, 64)
		if id == "" || err != nil {
			continue // it follows the newest version by itself
		}

		newest, err := a.newestVersion(ctx, id)
		if err != nil {
			return nil, err
		}

		if version < newest {
			out = append(out, g.Name)
		}
	}

	slices.Sort(out)

	return slices.Compact(out), nil
}

// newestVersion returns the newest version of a launch template.
func (a *awsMachines) newestVersion(ctx context.Context, id string) (int64, error) {
	out, err := a.ec2.DescribeLaunchTemplateVersions(ctx, &ec2.DescribeLaunchTemplateVersionsInput{
		LaunchTemplateId: &id,
		Versions:         []string{"$Latest"},
	})
	if err != nil {
		return 0, fmt.Errorf("read the newest version of launch template %s: %w", id, err)
	}

	var newest int64
	for _, v := range out.LaunchTemplateVersions {
		newest = max(newest, aws.ToInt64(v.VersionNumber))
	}

	return newest, nil
}
