// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// Leftovers are the resources that the deletion of a cluster has to deal with besides those that
// slipway created.
type Leftovers struct {
	// Resources were created by programs in the cluster, such as its cloud controllers. They are
	// deleted with it.
	Resources []plan.ActualResource
	// Data are the volumes of PersistentVolumeClaims and their snapshots. Their content cannot be
	// restored after a deletion.
	Data []plan.ActualResource
	// Blockers are resources in the cluster's own VPC with an unknown owner. AWS refuses to delete
	// the VPC before they are deleted.
	Blockers []Blocker
}

// FindLeftovers finds the leftovers of the cluster and the blockers of its deletion. own is what
// [driver.Cloud.Read] returned. Resources in a VPC count only if the cluster is in that VPC,
// because an EKS cluster may have the same name. It changes nothing.
func (f Finder) FindLeftovers(ctx context.Context, own []plan.ActualResource) (Leftovers, error) {
	s := newLeftoverSurvey(f, own)
	var wg sync.WaitGroup
	errs := make([]error, 4)
	wg.Go(func() { errs[0] = s.surveyData(ctx) })
	if len(s.vpcs) > 0 {
		wg.Go(func() { errs[1] = s.surveyNetwork(ctx) })
		wg.Go(func() { errs[2] = s.surveyBalancers(ctx) })
		wg.Go(func() { errs[3] = s.surveyLaunchTemplates(ctx) })
	}

	wg.Wait()

	for _, err := range errs {
		if err != nil {
			return Leftovers{}, err
		}
	}

	s.classifyInterfaces()

	return s.result, nil
}

// leftoverSurvey is one search for leftovers.
type leftoverSurvey struct {
	finder Finder
	ownIDs map[string]bool // ids of the cluster's own resources
	// scalingGroups are the cluster's auto scaling groups. They are deleted before leftovers,
	// because the programs that create leftovers run on their instances.
	scalingGroups []string
	// vpcs are the VPCs that the cluster is in; true if it owns the VPC.
	vpcs map[string]bool

	mu            sync.Mutex
	result        Leftovers
	interfaces    []ec2types.NetworkInterface
	balancerNames map[string]bool // names of the load balancers in vpcs
}

// newLeftoverSurvey returns a survey of the VPCs that the resources own are in.
func newLeftoverSurvey(f Finder, own []plan.ActualResource) *leftoverSurvey {
	s := &leftoverSurvey{
		finder:        f,
		ownIDs:        map[string]bool{},
		vpcs:          map[string]bool{},
		balancerNames: map[string]bool{},
	}

	for _, a := range own {
		s.ownIDs[a.ID] = true
		switch r := a.Resource.(type) {
		case awskind.VPC:
			s.vpcs[a.ID] = true
		case awskind.Subnet:
			s.addVPC(r.VPC.Literal())
		case awskind.SecurityGroup:
			s.addVPC(r.VPC.Literal())
		case awskind.AutoScalingGroup:
			s.scalingGroups = append(s.scalingGroups, a.ID)
		}
	}

	return s
}

// addVPC adds a VPC that the cluster is in, unless it is known as the cluster's own.
func (s *leftoverSurvey) addVPC(vpc string) {
	if !s.vpcs[vpc] {
		s.vpcs[vpc] = false
	}
}

// addLeftover adds a resource that is deleted with the cluster.
func (s *leftoverSurvey) addLeftover(id, name string, tags awskind.Tags, r graph.Resource, usedBy ...string) {
	a := plan.ActualResource{
		Addr:     graph.Address(r.Kind(), "leftover:"+name),
		ID:       id,
		Resource: r,
		Owner:    s.describeCreator(tags),
		UsedBy:   append(usedBy, s.scalingGroups...),
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.result.Resources = append(s.result.Resources, a)
}

// describeCreator returns what created a leftover; if its tags do not tell, the cluster.
func (s *leftoverSurvey) describeCreator(tags awskind.Tags) string {
	if creator := creatorFromTags(tags); creator != "" {
		return creator
	}

	return "cluster " + s.finder.cluster
}

// addBlocker adds a blocker, if it is in a VPC that is deleted with the cluster.
func (s *leftoverSurvey) addBlocker(vpc string, b Blocker) {
	if !s.vpcs[vpc] {
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.result.Blockers = append(s.result.Blockers, b)
}

// classifyInterfaces classifies the network interfaces, which needs all other results, and sorts
// the results by id.
func (s *leftoverSurvey) classifyInterfaces() {
	for _, n := range s.interfaces {
		s.classifyInterface(n)
	}

	byID := func(a, b plan.ActualResource) int { return strings.Compare(a.ID, b.ID) }
	slices.SortFunc(s.result.Resources, byID)
	slices.SortFunc(s.result.Data, byID)
	slices.SortFunc(s.result.Blockers, func(a, b Blocker) int { return strings.Compare(a.ID, b.ID) })
}

// surveyData finds the volumes and snapshots that the EBS driver created for
// PersistentVolumeClaims. They are in no VPC, so only their tags count.
func (s *leftoverSurvey) surveyData(ctx context.Context) error {
	// The values of the tags decide later: see classifyOwnership.
	tagged := driver.NewFilters("tag-key", clusterTagPrefix+s.finder.cluster, tagLegacyCluster)
	var wg sync.WaitGroup
	var volumesErr, snapshotsErr error
	wg.Go(func() { volumesErr = s.surveyVolumes(ctx, tagged) })
	wg.Go(func() { snapshotsErr = s.surveySnapshots(ctx, tagged) })
	wg.Wait()

	return errors.Join(volumesErr, snapshotsErr)
}

// surveyVolumes adds those of the volumes that f selects which the cluster owns.
func (s *leftoverSurvey) surveyVolumes(ctx context.Context, f []ec2types.Filter) error {
	pages := ec2.NewDescribeVolumesPaginator(s.finder.ec2, &ec2.DescribeVolumesInput{Filters: f})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return transport.Wrap(err, "list the volumes of PersistentVolumeClaims")
		}

		for _, v := range page.Volumes {
			r := driver.FromVolume(v)
			id := aws.ToString(v.VolumeId)
			// The root volume of an instance has slipway's tag, and is deleted with the instance. A volume that was set
			// aside has data.
			if s.ownIDs[id] || (r.Tags[awskind.TagCluster] != "" && r.Tags[awskind.TagSetAside] == "") ||
				s.finder.classify(r.Tags) != ownedByCluster ||
				isDeletedWithInstance(v) {
				continue
			}

			s.addData(id, r, volumeInstances(v))
		}
	}

	return nil
}

// isDeletedWithInstance reports whether a volume is being deleted, or will be deleted with its
// instance.
func isDeletedWithInstance(v ec2types.Volume) bool {
	return v.State == ec2types.VolumeStateDeleting || v.State == ec2types.VolumeStateDeleted ||
		slices.ContainsFunc(
			v.Attachments,
			func(a ec2types.VolumeAttachment) bool { return aws.ToBool(a.DeleteOnTermination) },
		)
}

// volumeInstances returns the ids of the instances that a volume is attached to.
func volumeInstances(v ec2types.Volume) []string {
	var out []string
	for _, a := range v.Attachments {
		out = append(out, aws.ToString(a.InstanceId))
	}

	return out
}

// surveySnapshots adds those of the snapshots that f selects which the cluster owns.
func (s *leftoverSurvey) surveySnapshots(ctx context.Context, f []ec2types.Filter) error {
	pages := ec2.NewDescribeSnapshotsPaginator(
		s.finder.ec2,
		&ec2.DescribeSnapshotsInput{Filters: f, OwnerIds: []string{"self"}},
	)

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return transport.Wrap(err, "list the snapshots of PersistentVolumeClaims")
		}

		for _, v := range page.Snapshots {
			r := driver.Snapshot{
				KMSKey: graph.LiteralText(aws.ToString(v.KmsKeyId)),
				Tags:   driver.FromEC2Tags(v.Tags),
			}
			if s.finder.classify(r.Tags) == ownedByCluster {
				s.addData(aws.ToString(v.SnapshotId), r, nil)
			}
		}
	}

	return nil
}

// addData adds a volume or a snapshot that instances use.
func (s *leftoverSurvey) addData(id string, r graph.Resource, instances []string) {
	tags := awskind.Tags{}
	switch x := r.(type) {
	case awskind.Volume:
		tags = x.Tags
	case driver.Snapshot:
		tags = x.Tags
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.result.Data = append(s.result.Data, plan.ActualResource{
		Addr:     graph.Address(r.Kind(), "leftover:"+id),
		ID:       id,
		Resource: r,
		Owner:    s.describeCreator(tags),
		UsedBy:   append(instances, s.scalingGroups...),
	})
}

// SplitDataKeys splits own: spared are the KMS keys that encrypt the kept volumes and snapshots,
// and the aliases of these keys; rest is all else. Data cannot be decrypted after the deletion of
// their key.
func SplitDataKeys(own, kept []plan.ActualResource) (rest, spared []plan.ActualResource) {
	needed := listDataKeyARNs(kept)
	ids := map[string]bool{}
	for _, a := range own {
		if _, ok := a.Resource.(awskind.KMSKey); ok && (needed[a.ID] || needed[a.Attributes["Arn"]]) {
			ids[a.ID] = true
		}
	}

	for _, a := range own {
		alias, ok := a.Resource.(awskind.KMSAlias)
		if ids[a.ID] || ok && ids[alias.Target.Literal()] {
			spared = append(spared, a)
			continue
		}

		rest = append(rest, a)
	}

	return rest, spared
}

// listDataKeyARNs returns the ARNs of the keys that encrypt data.
func listDataKeyARNs(data []plan.ActualResource) map[string]bool {
	out := map[string]bool{}
	for _, a := range data {
		var key graph.Text
		switch r := a.Resource.(type) {
		case awskind.Volume:
			key = r.KMSKey
		case driver.Snapshot:
			key = r.KMSKey
		}

		if arn, ok := key.Literal(); ok && arn != "" {
			out[arn] = true
		}
	}

	return out
}
