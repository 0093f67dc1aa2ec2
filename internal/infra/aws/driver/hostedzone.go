// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/route53"
	r53types "github.com/aws/aws-sdk-go-v2/service/route53/types"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/infra/graph"
	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

type zoneAPI interface {
	route53.ListHostedZonesAPIClient
	GetHostedZone(
		context.Context,
		*route53.GetHostedZoneInput,
		...func(*route53.Options),
	) (*route53.GetHostedZoneOutput, error)
	CreateHostedZone(
		context.Context,
		*route53.CreateHostedZoneInput,
		...func(*route53.Options),
	) (*route53.CreateHostedZoneOutput, error)
	DeleteHostedZone(
		context.Context,
		*route53.DeleteHostedZoneInput,
		...func(*route53.Options),
	) (*route53.DeleteHostedZoneOutput, error)
	UpdateHostedZoneComment(
		context.Context,
		*route53.UpdateHostedZoneCommentInput,
		...func(*route53.Options),
	) (*route53.UpdateHostedZoneCommentOutput, error)
	zoneTagAPI
	zoneVPCAPI
	recordAPI
}

type zoneTagAPI interface {
	ListTagsForResources(
		context.Context,
		*route53.ListTagsForResourcesInput,
		...func(*route53.Options),
	) (*route53.ListTagsForResourcesOutput, error)
	ChangeTagsForResource(
		context.Context,
		*route53.ChangeTagsForResourceInput,
		...func(*route53.Options),
	) (*route53.ChangeTagsForResourceOutput, error)
}

type zoneVPCAPI interface {
	AssociateVPCWithHostedZone(
		context.Context,
		*route53.AssociateVPCWithHostedZoneInput,
		...func(*route53.Options),
	) (*route53.AssociateVPCWithHostedZoneOutput, error)
	DisassociateVPCFromHostedZone(
		context.Context,
		*route53.DisassociateVPCFromHostedZoneInput,
		...func(*route53.Options),
	) (*route53.DisassociateVPCFromHostedZoneOutput, error)
}

// maxZoneTags is how many tags of one zone Route 53 changes per call.
const maxZoneTags = 10

// registerHostedZones registers the drivers of hosted zones and of the records in them. Route 53
// lists zones without their tags, so the cluster's zone is found by its comment. Records are also
// read in the zones of [Cloud.AddRecordZones].
func registerHostedZones(c *Cloud, api zoneAPI, scope Scope) {
	c.addReader(func(ctx context.Context) ([]plan.ActualResource, error) {
		if c.skipsZones {
			return nil, nil
		}

		return readZones(ctx, api, scope, c.recordZones)
	}, awskind.HostedZone{}, awskind.DNSRecord{})

	registerDriver(c, driver[awskind.HostedZone]{
		create: func(ctx context.Context, t task[awskind.HostedZone]) (plan.StepResult, error) {
			return createZone(ctx, api, t)
		},
		update: func(ctx context.Context, t task[awskind.HostedZone]) (plan.StepResult, error) {
			return updateZone(ctx, api, t)
		},
		remove: func(ctx context.Context, t task[awskind.HostedZone]) error {
			return deleteZone(ctx, api, t.id, t.have.Name)
		},
	})

	registerRecords(c, api)
}

func createZone(ctx context.Context, api zoneAPI, t task[awskind.HostedZone]) (plan.StepResult, error) {
	reference := t.want.Config.Comment + "/" + t.token
	in := &route53.CreateHostedZoneInput{
		Name:             &t.want.Name,
		CallerReference:  aws.String(reference),
		HostedZoneConfig: &r53types.HostedZoneConfig{Comment: &t.want.Config.Comment},
	}
	if len(t.want.VPCs) > 0 {
		in.HostedZoneConfig.PrivateZone = true
		in.VPC = toZoneVPC(t.want.VPCs[0])
		t.have.VPCs = t.want.VPCs[:1]
	}

	out, err := api.CreateHostedZone(ctx, in)
	if err != nil {
		return plan.StepResult{}, transport.Wrap(err, "create zone %s", t.want.Name)
	}

	t.id = TrimZonePrefix(out.HostedZone.Id)
	t.have.Config = t.want.Config

	return updateZone(ctx, api, t)
}

// updateZone sets the comment, the VPCs and the tags of a zone.
func updateZone(ctx context.Context, api zoneAPI, t task[awskind.HostedZone]) (plan.StepResult, error) {
	if t.want.Config != t.have.Config {
		in := &route53.UpdateHostedZoneCommentInput{Id: &t.id, Comment: &t.want.Config.Comment}
		if _, err := api.UpdateHostedZoneComment(ctx, in); err != nil {
			return plan.StepResult{}, transport.Wrap(err, "set the comment of zone %s", t.want.Name)
		}
	}

	if err := syncZoneVPCs(ctx, api, t); err != nil {
		return plan.StepResult{}, err
	}

	return plan.StepResult{ID: t.id}, retagZone(ctx, api, t)
}

// syncZoneVPCs associates a private zone with the VPCs that it lacks, and disassociates it from
// those that it is not to have. A private zone always has a VPC, so associations come first.
func syncZoneVPCs(ctx context.Context, api zoneVPCAPI, t task[awskind.HostedZone]) error {
	for _, v := range t.want.VPCs {
		if slices.Contains(t.have.VPCs, v) {
			continue
		}

		in := &route53.AssociateVPCWithHostedZoneInput{HostedZoneId: &t.id, VPC: toZoneVPC(v)}
		if _, err := api.AssociateVPCWithHostedZone(ctx, in); err != nil {
			return transport.Wrap(err, "associate %s with zone %s", v.VPC.Literal(), t.want.Name)
		}
	}

	for _, v := range t.have.VPCs {
		if slices.Contains(t.want.VPCs, v) {
			continue
		}

		in := &route53.DisassociateVPCFromHostedZoneInput{HostedZoneId: &t.id, VPC: toZoneVPC(v)}
		if _, err := api.DisassociateVPCFromHostedZone(ctx, in); err != nil {
			return transport.Wrap(err, "disassociate %s from zone %s", v.VPC.Literal(), t.want.Name)
		}
	}

	return nil
}

// retagZone sets all tags and not only those that differ: a zone has none if its creation was
// interrupted.
func retagZone(ctx context.Context, api zoneTagAPI, t task[awskind.HostedZone]) error {
	_, remove := diffTags(t.want.Tags, t.have.Tags)
	for keys := range slices.Chunk(slices.Sorted(maps.Keys(t.want.Tags)), maxZoneTags) {
		in := &route53.ChangeTagsForResourceInput{
			ResourceType: r53types.TagResourceTypeHostedzone,
			ResourceId:   &t.id,
		}

		for _, k := range keys {
			in.AddTags = append(in.AddTags, r53types.Tag{Key: &k, Value: aws.String(t.want.Tags[k])})
		}

		if _, err := api.ChangeTagsForResource(ctx, in); err != nil {
			return transport.Wrap(err, "tag zone %s", t.want.Name)
		}
	}

	for keys := range slices.Chunk(remove, maxZoneTags) {
		in := &route53.ChangeTagsForResourceInput{
			ResourceType:  r53types.TagResourceTypeHostedzone,
			ResourceId:    &t.id,
			RemoveTagKeys: keys,
		}
		if _, err := api.ChangeTagsForResource(ctx, in); err != nil {
			return transport.Wrap(err, "untag zone %s", t.want.Name)
		}
	}

	return nil
}

func toZoneVPC(v awskind.ZoneVPC) *r53types.VPC {
	return &r53types.VPC{VPCId: aws.String(v.VPC.Literal()), VPCRegion: r53types.VPCRegion(v.Region)}
}

// TrimZonePrefix returns the id of a zone without the prefix /hostedzone/ that Route 53 returns it
// with.
func TrimZonePrefix(id *string) string { return strings.TrimPrefix(aws.ToString(id), "/hostedzone/") }

// readZones returns the cluster's zones, and its records in these and in the unmanaged zones with
// the given ids.
func readZones(
	ctx context.Context,
	api zoneAPI,
	scope Scope,
	unmanaged []string,
) ([]plan.ActualResource, error) {
	zones, err := ListClusterZones(ctx, api, scope.Cluster)
	if err != nil {
		return nil, err
	}

	ids := slices.Clone(unmanaged)

	for _, z := range zones {
		if id := TrimZonePrefix(z.Id); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}

	found, err := readEach(
		zones,
		func(z r53types.HostedZone) ([]plan.ActualResource, error) { return readZone(ctx, api, z, scope) },
	)
	if err != nil {
		return nil, err
	}

	records, err := readEach(
		ids,
		func(id string) ([]plan.ActualResource, error) { return readRecords(ctx, api, id, scope) },
	)

	return append(found, records...), err
}

// ListClusterZones returns the hosted zones of a cluster: those with its name in their comment, or
// in their caller reference, which cannot be changed.
func ListClusterZones(
	ctx context.Context,
	api route53.ListHostedZonesAPIClient,
	cluster string,
) ([]r53types.HostedZone, error) {
	var out []r53types.HostedZone
	pages := route53.NewListHostedZonesPaginator(api, &route53.ListHostedZonesInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list hosted zones")
		}

		for _, z := range page.HostedZones {
			if z.Config != nil && aws.ToString(z.Config.Comment) == awskind.ZoneComment(cluster) ||
				strings.HasPrefix(aws.ToString(z.CallerReference), awskind.ZoneComment(cluster)+"/") {
				out = append(out, z)
			}
		}
	}

	return out, nil
}

// readZone returns a zone with its tags and VPCs. It returns none if the zone was deleted after it
// was listed.
func readZone(
	ctx context.Context,
	api zoneAPI,
	z r53types.HostedZone,
	scope Scope,
) ([]plan.ActualResource, error) {
	id := TrimZonePrefix(z.Id)
	tags, err := readZoneTags(ctx, api, id)
	if plan.ErrorClassOf(err) == plan.NotFound {
		return nil, nil
	} else if err != nil {
		return nil, err
	}

	if len(tags) == 0 { // its creation was interrupted: only the comment has the name of its cluster
		tags[awskind.TagCluster] = scope.Cluster
		tags[awskind.TagAddress] = string(graph.Address(awskind.HostedZone{}.Kind(), zoneNameInGraph(z, scope)))
	}

	r := awskind.HostedZone{Name: strings.TrimSuffix(aws.ToString(z.Name), "."), Tags: tags}
	if z.Config != nil {
		r.Config.Comment = aws.ToString(z.Config.Comment)
	}

	if z.Config != nil && z.Config.PrivateZone {
		if r.VPCs, err = readZoneVPCs(ctx, api, id); err != nil {
			return nil, err
		}
	}

	return []plan.ActualResource{{Addr: addressFromTags(tags), ID: id, Resource: r}}, nil
}

// zoneNameInGraph returns the name in the graph of a zone of the cluster.
func zoneNameInGraph(z r53types.HostedZone, scope Scope) string {
	if strings.TrimSuffix(aws.ToString(z.Name), ".") == v1alpha1.EtcdZone(scope.Cluster) {
		return awskind.EtcdZoneName
	}

	return awskind.ZoneName
}

func readZoneTags(ctx context.Context, api zoneTagAPI, id string) (awskind.Tags, error) {
	list, err := api.ListTagsForResources(ctx, &route53.ListTagsForResourcesInput{
		ResourceType: r53types.TagResourceTypeHostedzone,
		ResourceIds:  []string{id},
	})
	if err != nil {
		return nil, transport.Wrap(err, "list the tags of zone %s", id)
	}

	tags := awskind.Tags{}
	for _, set := range list.ResourceTagSets {
		for _, t := range set.Tags {
			tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
		}
	}

	return tags, nil
}

// readZoneVPCs returns the VPCs of a private zone, which the list of zones lacks.
func readZoneVPCs(ctx context.Context, api zoneAPI, id string) ([]awskind.ZoneVPC, error) {
	zone, err := api.GetHostedZone(ctx, &route53.GetHostedZoneInput{Id: &id})
	if err != nil {
		return nil, transport.Wrap(err, "read zone %s", id)
	}

	var out []awskind.ZoneVPC
	for _, v := range zone.VPCs {
		vpc := graph.UnmanagedRef[awskind.VPC](aws.ToString(v.VPCId))
		out = append(out, awskind.ZoneVPC{VPC: vpc, Region: string(v.VPCRegion)})
	}

	return out, nil
}

// explainNotEmpty adds to err the records that prevent the deletion of a zone.
func explainNotEmpty(ctx context.Context, api recordAPI, id string, err error) error {
	var names []string
	walkErr := WalkRecords(ctx, api, id, func(r r53types.ResourceRecordSet) {
		if r.Type != r53types.RRTypeNs && r.Type != r53types.RRTypeSoa {
			names = append(names, aws.ToString(r.Name)+" "+string(r.Type))
		}
	})
	if walkErr != nil || len(names) == 0 {
		return err
	}

	const maxNames = 5
	more := ""
	if len(names) > maxNames {
		more = fmt.Sprintf(" and %d more", len(names)-maxNames)
		names = names[:maxNames]
	}

	list := strings.Join(names, ", ") + more

	return fmt.Errorf("the zone has records that the cluster does not own: %s: %w", list, err)
}
