// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"
	"slices"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

// Remains is what lies about where a cluster was, beside what we made.
type Remains struct {
	// Leftovers were made by programs in the cluster, such as its cloud controllers. They go with it.
	Leftovers []plan.Actual
	// Data are volumes of claims and their snapshots: they hold what cannot be made again.
	Data []plan.Actual
	// Blockers lie in the cluster's own VPC, and are nobody's that we know. AWS will not delete the VPC before they are gone.
	Blockers []Blocker
}

// Blocker is a thing that keeps AWS from deleting another one.
type Blocker struct {
	ID string `json:"id"`
	// Kind in words, such as "network interface".
	Kind string `json:"kind"`
	// Owner in words, as far as AWS can tell; it may be empty.
	Owner string `json:"owner,omitempty"`

	going bool // it is on its way out
	ours  bool // it is the cluster's
}

// String renders b as "eni-0: network interface of service default/web".
func (b Blocker) String() string {
	s := b.ID + ": " + b.Kind
	if b.Owner != "" {
		s += " of " + b.Owner
	}
	return s
}

// Remains looks for what programs in the cluster left over, and for what is in the way; own is what [Cloud.Read] found.
// What lies in a VPC counts only if that is the cluster's VPC: a cluster of EKS may bear the same name. It changes nothing.
func (c *Cloud) Remains(ctx context.Context, own []plan.Actual) (Remains, error) {
	s := newSurvey(c, own)
	var wg sync.WaitGroup
	errs := make([]error, 3)
	wg.Go(func() { errs[0] = s.data(ctx) })
	if len(s.vpcs) > 0 {
		wg.Go(func() { errs[1] = s.network(ctx) })
		wg.Go(func() { errs[2] = s.balancing(ctx) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return Remains{}, err
		}
	}
	s.settleOwners()
	return s.out, nil
}

// survey is one look at what remains.
type survey struct {
	c       *Cloud
	cluster string
	own     map[string]bool // identities
	groups  []string        // the auto scaling groups: their machines run what makes leftovers, so they go first
	vpcs    map[string]bool // where the cluster lies; true: the VPC is its own

	mu         sync.Mutex
	out        Remains
	interfaces []ec2types.NetworkInterface
	balancers  map[string]bool // names of load balancers that were looked at
}

func newSurvey(c *Cloud, own []plan.Actual) *survey {
	s := &survey{c: c, cluster: c.scope.Cluster, own: map[string]bool{}, vpcs: map[string]bool{}, balancers: map[string]bool{}}
	for _, a := range own {
		s.own[a.ID] = true
		switch r := a.Resource.(type) {
		case awskind.VPC:
			s.vpcs[a.ID] = true
		case awskind.Subnet:
			s.lies(r.VPC.Literal())
		case awskind.SecurityGroup:
			s.lies(r.VPC.Literal())
		case awskind.AutoScalingGroup:
			s.groups = append(s.groups, a.ID)
		}
	}
	return s
}

// lies notes a VPC that the cluster lies in, which may be its own.
func (s *survey) lies(vpc string) {
	if !s.vpcs[vpc] {
		s.vpcs[vpc] = false
	}
}

// leftover adds a thing that goes with the cluster.
func (s *survey) leftover(id, name string, tags awskind.Tags, r graph.Resource, usedBy ...string) {
	a := plan.Actual{
		Addr: graph.Address(r.Kind(), "leftover:"+name), ID: id, Resource: r, Owner: s.maker(tags), UsedBy: append(usedBy, s.groups...),
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out.Leftovers = append(s.out.Leftovers, a)
}

func (s *survey) maker(tags awskind.Tags) string {
	if who := makerOf(tags); who != "" {
		return who
	}
	return "cluster " + s.cluster
}

// blocker notes a thing that is in the way, if it lies in a VPC that is to go.
func (s *survey) blocker(vpc string, b Blocker) {
	if !s.vpcs[vpc] {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out.Blockers = append(s.out.Blockers, b)
}

// settleOwners sorts out the interfaces once all else is known, and puts everything into an order of its own.
func (s *survey) settleOwners() {
	for _, n := range s.interfaces {
		s.face(n)
	}
	byID := func(a, b plan.Actual) int { return strings.Compare(a.ID, b.ID) }
	slices.SortFunc(s.out.Leftovers, byID)
	slices.SortFunc(s.out.Data, byID)
	slices.SortFunc(s.out.Blockers, func(a, b Blocker) int { return strings.Compare(a.ID, b.ID) })
}

// data finds the volumes and snapshots that the EBS driver made for claims. They lie in no VPC: their tags alone count.
func (s *survey) data(ctx context.Context) error {
	seen := map[string]bool{}
	for _, f := range [][]ec2types.Filter{
		filter("tag:"+clusterTagPrefix+s.cluster, "owned"), filter("tag:"+tagLegacyCluster, s.cluster),
	} {
		if err := s.volumes(ctx, f, seen); err != nil {
			return err
		}
		if err := s.snapshots(ctx, f, seen); err != nil {
			return err
		}
	}
	return nil
}

func (s *survey) volumes(ctx context.Context, f []ec2types.Filter, seen map[string]bool) error {
	pages := ec2.NewDescribeVolumesPaginator(s.c.lookout.ec2, &ec2.DescribeVolumesInput{Filters: f})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return wrap(err, "list the volumes of claims")
		}
		for _, v := range page.Volumes {
			r, id := fromVolume(v), aws.ToString(v.VolumeId)
			// A machine's root volume bears our tag, and goes with the machine.
			if seen[id] || s.own[id] || r.Tags[awskind.TagCluster] != "" || claimOf(r.Tags, s.cluster) != mine || passing(v) {
				continue
			}
			seen[id] = true
			s.keep(id, r, attachedTo(v))
		}
	}
	return nil
}

// passing says whether a volume goes by itself: it is going, or ends with its machine.
func passing(v ec2types.Volume) bool {
	return v.State == ec2types.VolumeStateDeleting || v.State == ec2types.VolumeStateDeleted ||
		slices.ContainsFunc(v.Attachments, func(a ec2types.VolumeAttachment) bool { return aws.ToBool(a.DeleteOnTermination) })
}

func attachedTo(v ec2types.Volume) []string {
	var out []string
	for _, a := range v.Attachments {
		out = append(out, aws.ToString(a.InstanceId))
	}
	return out
}

func (s *survey) snapshots(ctx context.Context, f []ec2types.Filter, seen map[string]bool) error {
	pages := ec2.NewDescribeSnapshotsPaginator(s.c.lookout.ec2, &ec2.DescribeSnapshotsInput{Filters: f, OwnerIds: []string{"self"}})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return wrap(err, "list the snapshots of claims")
		}
		for _, v := range page.Snapshots {
			r := Snapshot{KMSKey: graph.Lit(aws.ToString(v.KmsKeyId)), Tags: fromEC2(v.Tags)}
			if id := aws.ToString(v.SnapshotId); !seen[id] && claimOf(r.Tags, s.cluster) == mine {
				seen[id] = true
				s.keep(id, r, nil)
			}
		}
	}
	return nil
}

func (s *survey) keep(id string, r graph.Resource, users []string) {
	tags := awskind.Tags{}
	switch x := r.(type) {
	case awskind.Volume:
		tags = x.Tags
	case Snapshot:
		tags = x.Tags
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.out.Data = append(s.out.Data, plan.Actual{
		Addr: graph.Address(r.Kind(), "leftover:"+id), ID: id, Resource: r, Owner: s.maker(tags), UsedBy: append(users, s.groups...),
	})
}

// Spare returns own without the keys that kept data is encrypted with, and their aliases: without its key it is lost too.
func Spare(own, kept []plan.Actual) (rest, spared []plan.Actual) {
	needed := keysOf(kept)
	ids := map[string]bool{}
	for _, a := range own {
		if _, ok := a.Resource.(awskind.Key); ok && (needed[a.ID] || needed[a.Attributes["Arn"]]) {
			ids[a.ID] = true
		}
	}
	for _, a := range own {
		alias, ok := a.Resource.(awskind.Alias)
		if ids[a.ID] || ok && ids[alias.Target.Literal()] {
			spared = append(spared, a)
			continue
		}
		rest = append(rest, a)
	}
	return rest, spared
}

// keysOf are the ARNs of the keys that data is encrypted with.
func keysOf(data []plan.Actual) map[string]bool {
	out := map[string]bool{}
	for _, a := range data {
		var key graph.Text
		switch r := a.Resource.(type) {
		case awskind.Volume:
			key = r.KMSKey
		case Snapshot:
			key = r.KMSKey
		}
		if arn, ok := key.Literal(); ok && arn != "" {
			out[arn] = true
		}
	}
	return out
}
