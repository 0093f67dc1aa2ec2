// SPDX-License-Identifier: Apache-2.0

package cleanup

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/infra/aws/driver"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
)

// listReferringGroups returns the security groups with rules that refer to group.
func (f Finder) listReferringGroups(ctx context.Context, group string) ([]Blocker, error) {
	var out []Blocker
	seen := map[string]bool{group: true}
	for _, name := range []string{"ip-permission.group-id", "egress.ip-permission.group-id"} {
		list, err := f.listGroups(ctx, name, group)
		if err != nil {
			return nil, err
		}

		for _, b := range list {
			if !seen[b.ID] {
				seen[b.ID] = true
				b.Kind = "rule in " + b.Kind
				out = append(out, b)
			}
		}
	}

	return out, nil
}

// listGroups returns the security groups that a filter selects, except default groups.
func (f Finder) listGroups(ctx context.Context, filter, value string) ([]Blocker, error) {
	var out []Blocker
	pages := ec2.NewDescribeSecurityGroupsPaginator(
		f.ec2,
		&ec2.DescribeSecurityGroupsInput{Filters: driver.NewFilters(filter, value)},
	)

	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, transport.Wrap(err, "list the security groups that use %s", value)
		}

		for _, g := range page.SecurityGroups {
			if aws.ToString(g.GroupName) != "default" {
				b := newGroupBlocker(g)
				b.owned = f.classify(driver.FromEC2Tags(g.Tags)) == ownedByCluster
				out = append(out, b)
			}
		}
	}

	return out, nil
}

// listVPCContents returns the resources in a VPC that prevent its deletion, which are nearly all of
// them.
func (f Finder) listVPCContents(ctx context.Context, vpc string) ([]Blocker, error) {
	out, err := f.findInterfaces(ctx, "vpc-id", vpc)
	if err != nil {
		return nil, err
	}

	lists := []func(context.Context, string) ([]Blocker, error){
		f.listVPCGroups,
		f.listSubnets,
		f.listRouteTables,
		f.listInternetGateways,
		f.listEndpoints,
	}

	for _, list := range lists {
		more, err := list(ctx, vpc)
		if err != nil {
			return nil, err
		}

		out = append(out, more...)
	}

	return out, nil
}

func (f Finder) listVPCGroups(ctx context.Context, vpc string) ([]Blocker, error) {
	return f.listGroups(ctx, "vpc-id", vpc)
}

// newTaggedBlocker returns a resource with the owner in its tags.
func (f Finder) newTaggedBlocker(id *string, kind string, tags []ec2types.Tag) Blocker {
	t := driver.FromEC2Tags(tags)

	return Blocker{
		ID:    aws.ToString(id),
		Kind:  kind + formatNameTag(t),
		Owner: creatorFromTags(t),
		owned: f.classify(t) == ownedByCluster,
	}
}

func (f Finder) listSubnets(ctx context.Context, vpc string) ([]Blocker, error) {
	pages := ec2.NewDescribeSubnetsPaginator(f.ec2, &ec2.DescribeSubnetsInput{Filters: driver.NewFilters("vpc-id", vpc)})
	subnets, err := transport.CollectPages(ctx, pages, func(p *ec2.DescribeSubnetsOutput) []ec2types.Subnet {
		return p.Subnets
	})
	if err != nil {
		return nil, transport.Wrap(err, "list the subnets of %s", vpc)
	}

	var out []Blocker
	for _, s := range subnets {
		out = append(out, f.newTaggedBlocker(s.SubnetId, "subnet", s.Tags))
	}

	return out, nil
}

// listRouteTables returns the route tables of a VPC except its main one, which is deleted with the
// VPC.
func (f Finder) listRouteTables(ctx context.Context, vpc string) ([]Blocker, error) {
	pages := ec2.NewDescribeRouteTablesPaginator(
		f.ec2,
		&ec2.DescribeRouteTablesInput{Filters: driver.NewFilters("vpc-id", vpc)},
	)
	tables, err := transport.CollectPages(ctx, pages, func(p *ec2.DescribeRouteTablesOutput) []ec2types.RouteTable {
		return p.RouteTables
	})
	if err != nil {
		return nil, transport.Wrap(err, "list the route tables of %s", vpc)
	}

	var out []Blocker

	for _, t := range tables {
		main := false
		for _, a := range t.Associations {
			main = main || aws.ToBool(a.Main)
		}

		if !main {
			out = append(out, f.newTaggedBlocker(t.RouteTableId, "route table", t.Tags))
		}
	}

	return out, nil
}

func (f Finder) listInternetGateways(ctx context.Context, vpc string) ([]Blocker, error) {
	pages := ec2.NewDescribeInternetGatewaysPaginator(
		f.ec2,
		&ec2.DescribeInternetGatewaysInput{Filters: driver.NewFilters("attachment.vpc-id", vpc)},
	)
	gateways, err := transport.CollectPages(
		ctx,
		pages,
		func(p *ec2.DescribeInternetGatewaysOutput) []ec2types.InternetGateway { return p.InternetGateways },
	)
	if err != nil {
		return nil, transport.Wrap(err, "list the internet gateways of %s", vpc)
	}

	var out []Blocker
	for _, g := range gateways {
		out = append(out, f.newTaggedBlocker(g.InternetGatewayId, "internet gateway", g.Tags))
	}

	return out, nil
}

func (f Finder) listEndpoints(ctx context.Context, vpc string) ([]Blocker, error) {
	pages := ec2.NewDescribeVpcEndpointsPaginator(
		f.ec2,
		&ec2.DescribeVpcEndpointsInput{Filters: driver.NewFilters("vpc-id", vpc)},
	)
	endpoints, err := transport.CollectPages(ctx, pages, func(p *ec2.DescribeVpcEndpointsOutput) []ec2types.VpcEndpoint {
		return p.VpcEndpoints
	})
	if err != nil {
		return nil, transport.Wrap(err, "list the VPC endpoints of %s", vpc)
	}

	var out []Blocker

	for _, e := range endpoints {
		b := f.newTaggedBlocker(e.VpcEndpointId, "VPC endpoint "+aws.ToString(e.ServiceName), e.Tags)
		b.deleting = e.State == ec2types.StateDeleting || e.State == ec2types.StateDeleted
		out = append(out, b)
	}

	return out, nil
}
