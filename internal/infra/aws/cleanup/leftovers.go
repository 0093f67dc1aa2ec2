// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"context"
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

// Leftovers is what lies about where a cluster was, beside what we made.
type Leftovers struct {
	// Resources were made by programs in the cluster, such as its cloud controllers. They go with it.
	Resources []plan.ActualResource
	// Data are volumes of claims and their snapshots: they hold what cannot be made again.
	Data []plan.ActualResource
	// Blockers lie in the cluster's own VPC, and are nobody's that we know. AWS will not delete the VPC before they are gone.
	Blockers []Blocker
}

// FindLeftovers looks for what programs in the cluster left over, and for what is in the way; own is what [Cloud.Read] found.
// What lies in a VPC counts only if that is the cluster's VPC: a cluster of EKS may bear the same name. It changes nothing.
func (f Finder) FindLeftovers(ctx context.Context, own []plan.ActualResource) (Leftovers, error) {
	s := newLeftoverSurvey(f, own)
	var wg sync.WaitGroup
	errs := make([]error, 3)
	wg.Go(func() { errs[0] = s.surveyData(ctx) })
	if len(s.vpcs) > 0 {
		wg.Go(func() { errs[1] = s.surveyNetwork(ctx) })
		wg.Go(func() { errs[2] = s.surveyBalancers(ctx) })
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

// leftoverSurvey is one look at what remains.
type leftoverSurvey struct {
	finder        Finder
	ownIDs        map[string]bool // identities
	scalingGroups []string        // the auto scaling groups: their machines run what makes leftovers, so they go first
	vpcs          map[string]bool // where the cluster lies; true: the VPC is its own

	mu            sync.Mutex
	result        Leftovers
	interfaces    []ec2types.NetworkInterface
	balancerNames map[string]bool // names of load balancers that were looked at
}

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

// addVPC notes a VPC that the cluster lies in, which may be its own.
func (s *leftoverSurvey) addVPC(vpc string) {
	if !s.vpcs[vpc] {
		s.vpcs[vpc] = false
	}
}

// addLeftover adds a thing that goes with the cluster.
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

func (s *leftoverSurvey) describeCreator(tags awskind.Tags) string {
	if who := creatorFromTags(tags); who != "" {
		return who
	}

	return "cluster " + s.finder.cluster
}

// addBlocker notes a thing that is in the way, if it lies in a VPC that is to go.
func (s *leftoverSurvey) addBlocker(vpc string, b Blocker) {
	if !s.vpcs[vpc] {
		return
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.result.Blockers = append(s.result.Blockers, b)
}

// classifyInterfaces sorts out the interfaces once all else is known, and puts everything into an order of its own.
func (s *leftoverSurvey) classifyInterfaces() {
	for _, n := range s.interfaces {
		s.classifyInterface(n)
	}

	byID := func(a, b plan.ActualResource) int { return strings.Compare(a.ID, b.ID) }
	slices.SortFunc(s.result.Resources, byID)
	slices.SortFunc(s.result.Data, byID)
	slices.SortFunc(s.result.Blockers, func(a, b Blocker) int { return strings.Compare(a.ID, b.ID) })
}

// surveyData finds the volumes and snapshots that the EBS driver made for claims. They lie in no VPC: their tags alone count.
func (s *leftoverSurvey) surveyData(ctx context.Context) error {
	seen := map[string]bool{}
	for _, f := range [][]ec2types.Filter{
		driver.NewFilters("tag:"+clusterTagPrefix+s.finder.cluster, "owned"), driver.NewFilters("tag:"+tagLegacyCluster, s.finder.cluster),
	} {
		if err := s.surveyVolumes(ctx, f, seen); err != nil {
			return err
		}

		if err := s.surveySnapshots(ctx, f, seen); err != nil {
			return err
		}
	}

	return nil
}

func (s *leftoverSurvey) surveyVolumes(ctx context.Context, f []ec2types.Filter, seen map[string]bool) error {
	pages := ec2.NewDescribeVolumesPaginator(s.finder.ec2, &ec2.DescribeVolumesInput{Filters: f})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return transport.Wrap(err, "list the volumes of claims")
		}

		for _, v := range page.Volumes {
			r := driver.FromVolume(v)
			id := aws.ToString(v.VolumeId)
			// A machine's root volume bears our tag, and goes with the machine.
			if seen[id] || s.ownIDs[id] || r.Tags[awskind.TagCluster] != "" ||
				classifyOwnership(r.Tags, s.finder.cluster) != ownedByCluster ||
				isDeletedWithInstance(v) {
				continue
			}

			seen[id] = true
			s.addData(id, r, volumeInstances(v))
		}
	}

	return nil
}

// isDeletedWithInstance says whether a volume goes by itself: it is going, or ends with its machine.
func isDeletedWithInstance(v ec2types.Volume) bool {
	return v.State == ec2types.VolumeStateDeleting || v.State == ec2types.VolumeStateDeleted ||
		slices.ContainsFunc(
			v.Attachments,
			func(a ec2types.VolumeAttachment) bool { return aws.ToBool(a.DeleteOnTermination) },
		)
}

func volumeInstances(v ec2types.Volume) []string {
	var out []string
	for _, a := range v.Attachments {
		out = append(out, aws.ToString(a.InstanceId))
	}

	return out
}

func (s *leftoverSurvey) surveySnapshots(
	ctx context.Context,
	f []ec2types.Filter,
	seen map[string]bool,
) error {
	pages := ec2.NewDescribeSnapshotsPaginator(
		s.finder.ec2,
		&ec2.DescribeSnapshotsInput{Filters: f, OwnerIds: []string{"self"}},
	)

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return transport.Wrap(err, "list the snapshots of claims")
		}

		for _, v := range page.Snapshots {
			r := driver.Snapshot{KMSKey: graph.LiteralText(aws.ToString(v.KmsKeyId)), Tags: driver.FromEC2Tags(v.Tags)}
			if id := aws.ToString(v.SnapshotId); !seen[id] &&
				classifyOwnership(r.Tags, s.finder.cluster) == ownedByCluster {
				seen[id] = true
				s.addData(id, r, nil)
			}
		}
	}

	return nil
}

func (s *leftoverSurvey) addData(id string, r graph.Resource, users []string) {
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
		UsedBy:   append(users, s.scalingGroups...),
	})
}

// SplitDataKeys returns own without the keys that kept data is encrypted with, and their aliases: without its key it is lost too.
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

// listDataKeyARNs are the ARNs of the keys that data is encrypted with.
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
