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

// maxZoneTags is how many tags one call sets, and of how many zones one call reads them.
const maxZoneTags = 10

// registerHostedZones drives hosted zones and the records in them. An account's zones are listed without their tags, so the cluster's
// is told by its comment first; existing zones are those of [Cloud.AddRecordZones].
func registerHostedZones(c *Cloud, api zoneAPI, scope Scope) {
	c.addReader(func(ctx context.Context) ([]plan.ActualResource, error) {
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
			_, err := api.DeleteHostedZone(ctx, &route53.DeleteHostedZoneInput{Id: &t.id})
			if err = transport.Wrap(err, "delete zone %s", t.have.Name); transport.ErrorCode(err) == "HostedZoneNotEmpty" {
				return explainNotEmpty(ctx, api, t.id, err)
			}

			return err
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
		in.HostedZoneConfig.PrivateZone, in.VPC = true, toZoneVPC(t.want.VPCs[0])
		t.have.VPCs = t.want.VPCs[:1]
	}

	out, err := api.CreateHostedZone(ctx, in)
	if err != nil {
		return plan.StepResult{}, transport.Wrap(err, "create zone %s", t.want.Name)
	}

	t.id, t.have.Config = TrimZonePrefix(out.HostedZone.Id), t.want.Config

	return updateZone(ctx, api, t)
}

func updateZone(ctx context.Context, api zoneAPI, t task[awskind.HostedZone]) (plan.StepResult, error) {
	if t.want.Config != t.have.Config {
		if _, err := api.UpdateHostedZoneComment(ctx, &route53.UpdateHostedZoneCommentInput{Id: &t.id, Comment: &t.want.Config.Comment}); err != nil {
			return plan.StepResult{}, transport.Wrap(err, "comment zone %s", t.want.Name)
		}
	}

	for _, v := range t.want.VPCs {
		if !slices.Contains(t.have.VPCs, v) {
			if _, err := api.AssociateVPCWithHostedZone(ctx, &route53.AssociateVPCWithHostedZoneInput{HostedZoneId: &t.id, VPC: toZoneVPC(v)}); err != nil {
				return plan.StepResult{}, transport.Wrap(err, "let %s know zone %s", v.VPC.Literal(), t.want.Name)
			}
		}
	}

	for _, v := range t.have.VPCs {
		if !slices.Contains(t.want.VPCs, v) {
			if _, err := api.DisassociateVPCFromHostedZone(ctx, &route53.DisassociateVPCFromHostedZoneInput{HostedZoneId: &t.id, VPC: toZoneVPC(v)}); err != nil {
				return plan.StepResult{}, transport.Wrap(err, "take zone %s from %s", t.want.Name, v.VPC.Literal())
			}
		}
	}

	return plan.StepResult{ID: t.id}, retagZone(ctx, api, t)
}

// retagZone sets all tags: a zone whose creation was cut short has none, though its comment says that it is ours.
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

// TrimZonePrefix is an id without the /hostedzone/ that answers put before it.
func TrimZonePrefix(id *string) string { return strings.TrimPrefix(aws.ToString(id), "/hostedzone/") }

// readZones returns the cluster's zones and its records in these and in existing zones.
func readZones(
	ctx context.Context,
	api zoneAPI,
	scope Scope,
	existing []string,
) ([]plan.ActualResource, error) {
	ours, err := ListClusterZones(ctx, api, scope.Cluster)
	if err != nil {
		return nil, err
	}

	ids := slices.Clone(existing)

	for _, z := range ours {
		if id := TrimZonePrefix(z.Id); !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}

	found, err := readEach(
		ours,
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

// ListClusterZones are the zones whose comment, or whose reference, which nobody can change, says that they are the cluster's.
func ListClusterZones(ctx context.Context, api route53.ListHostedZonesAPIClient, cluster string) ([]r53types.HostedZone, error) {
	var ours []r53types.HostedZone
	pages := route53.NewListHostedZonesPaginator(api, &route53.ListHostedZonesInput{})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list hosted zones")
		}

		for _, z := range page.HostedZones {
			if z.Config != nil && aws.ToString(z.Config.Comment) == awskind.RecordSetID(cluster) ||
				strings.HasPrefix(aws.ToString(z.CallerReference), awskind.RecordSetID(cluster)+"/") {
				ours = append(ours, z)
			}
		}
	}

	return ours, nil
}

func readZone(
	ctx context.Context,
	api zoneAPI,
	z r53types.HostedZone,
	scope Scope,
) ([]plan.ActualResource, error) {
	id := TrimZonePrefix(z.Id)
	list, err := api.ListTagsForResources(
		ctx,
		&route53.ListTagsForResourcesInput{
			ResourceType: r53types.TagResourceTypeHostedzone,
			ResourceIds:  []string{id},
		},
	)
	if err = transport.Wrap(err, "list the tags of zone %s", id); plan.ErrorClassOf(err) == plan.NotFound {
		return nil, nil
	} else if err != nil {
		return nil, err
	}

	tags := awskind.Tags{}

	for _, set := range list.ResourceTagSets {
		for _, t := range set.Tags {
			tags[aws.ToString(t.Key)] = aws.ToString(t.Value)
		}
	}

	if len(tags) == 0 { // its creation was cut short: the comment alone says whose it is
		tags[awskind.TagCluster], tags[awskind.TagAddress] = scope.Cluster, string(
			graph.Address(awskind.HostedZone{}.Kind(), awskind.ZoneName),
		)
	}

	r := awskind.HostedZone{Name: strings.TrimSuffix(aws.ToString(z.Name), "."), Tags: tags}
	if z.Config != nil {
		r.Config.Comment = aws.ToString(z.Config.Comment)
	}

	if z.Config != nil && z.Config.PrivateZone {
		full, err := api.GetHostedZone(ctx, &route53.GetHostedZoneInput{Id: &id})
		if err != nil {
			return nil, transport.Wrap(err, "read zone %s", id)
		}

		for _, v := range full.VPCs {
			r.VPCs = append(
				r.VPCs,
				awskind.ZoneVPC{
					VPC:    graph.UnmanagedRef[awskind.VPC](aws.ToString(v.VPCId)),
					Region: string(v.VPCRegion),
				},
			)
		}
	}

	return []plan.ActualResource{{Addr: addressFromTags(tags), ID: id, Resource: r}}, nil
}

// explainNotEmpty says which records keep a zone from being deleted.
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

	const most = 5
	more := ""
	if len(names) > most {
		names, more = names[:most], fmt.Sprintf(" and %d more", len(names)-most)
	}

	return fmt.Errorf("records of others are in it: %s%s: %w", strings.Join(names, ", "), more, err)
}
