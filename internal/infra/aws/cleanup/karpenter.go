// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"context"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

const (
	// tagKarpenterCluster is set by Karpenter also in clusters that are not EKS's; the value is the cluster's name.
	tagKarpenterCluster = "eks:eks-cluster-name"
	// actionOfLaunchers is the action with which Karpenter launches machines.
	actionOfLaunchers = "ec2:CreateFleet"
)

// isKarpenterOf reports whether a tag of EKS was set by the Karpenter of the cluster, which gives what it creates the tags of
// its EC2NodeClass, too. Karpenter in a cluster of EKS with the same name has no tag of Slipway.
func isKarpenterOf(cluster, key, value string, tags awskind.Tags) bool {
	_, created := tags[awskind.TagNodePool]

	return created && key == tagKarpenterCluster && value == cluster && tags[awskind.TagCluster] == cluster
}

// surveyLaunchTemplates adds the launch templates that Karpenter created from EC2NodeClasses with the tags of Slipway. They are
// in no VPC, so only their tags count.
func (s *leftoverSurvey) surveyLaunchTemplates(ctx context.Context) error {
	pages := ec2.NewDescribeLaunchTemplatesPaginator(s.finder.ec2, &ec2.DescribeLaunchTemplatesInput{
		Filters: slices.Concat(
			driver.NewFilters("tag:"+awskind.TagCluster, s.finder.cluster),
			driver.NewFilters("tag-key", awskind.TagNodePool),
		),
	})

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return transport.Wrap(err, "list the launch templates of Karpenter")
		}

		for _, t := range page.LaunchTemplates {
			id := aws.ToString(t.LaunchTemplateId)
			name := aws.ToString(t.LaunchTemplateName)
			tags := driver.FromEC2Tags(t.Tags)
			if !s.ownIDs[id] && s.finder.classify(tags) == ownedByCluster {
				s.addLeftover(id, name, tags, awskind.LaunchTemplate{Name: name, Tags: tags})
			}
		}
	}

	return nil
}

// FindLaunchers returns the inline policies of roles that may launch fleets, as Karpenter's.
func FindLaunchers(own []plan.ActualResource) []plan.ActualResource {
	return slices.DeleteFunc(slices.Clone(own), func(a plan.ActualResource) bool {
		policy, ok := a.Resource.(awskind.IAMRolePolicy)

		return !ok || !strings.Contains(string(policy.Document), `"`+actionOfLaunchers+`"`)
	})
}

// DisarmLaunchersFirst returns own in such an order that the inline policies of roles that may launch fleets, as Karpenter's, are
// deleted before the Auto Scaling groups. Until then Karpenter runs, and would replace the machines that are deleted.
func DisarmLaunchersFirst(own []plan.ActualResource) []plan.ActualResource {
	var launchers []string
	for _, a := range FindLaunchers(own) {
		launchers = append(launchers, a.ID)
	}

	out := slices.Clone(own)
	for i, a := range out {
		if a.Resource.Kind().Name == (awskind.AutoScalingGroup{}).Kind().Name {
			out[i].UsedBy = slices.Concat(a.UsedBy, launchers)
		}
	}

	return out
}
