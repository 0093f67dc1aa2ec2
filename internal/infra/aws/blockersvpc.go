// SPDX-License-Identifier: Apache-2.0

package aws

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// referring lists the security groups whose rules refer to group.
func (f finder) referring(ctx context.Context, group string) ([]Blocker, error) {
	var out []Blocker
	seen := map[string]bool{group: true}
	for _, name := range []string{"ip-permission.group-id", "egress.ip-permission.group-id"} {
		list, err := f.groups(ctx, name, group)
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

func (f finder) groups(ctx context.Context, name, value string) ([]Blocker, error) {
	var out []Blocker
	pages := ec2.NewDescribeSecurityGroupsPaginator(f.ec2, &ec2.DescribeSecurityGroupsInput{Filters: filter(name, value)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, wrap(err, "look for what is in the way")
		}
		for _, g := range page.SecurityGroups {
			if aws.ToString(g.GroupName) != "default" {
				b := groupBlocker(g)
				b.ours = claimOf(fromEC2(g.Tags), f.cluster) == mine
				out = append(out, b)
			}
		}
	}
	return out, nil
}

// inVPC lists what keeps a VPC: nearly everything that lies in it.
func (f finder) inVPC(ctx context.Context, vpc string) ([]Blocker, error) {
	out, err := f.faces(ctx, "vpc-id", vpc, false)
	if err != nil {
		return nil, err
	}
	for _, look := range []func(context.Context, string) ([]Blocker, error){
		func(ctx context.Context, id string) ([]Blocker, error) { return f.groups(ctx, "vpc-id", id) }, f.subnets, f.tables, f.internet, f.endpoints,
	} {
		more, err := look(ctx, vpc)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return out, nil
}

// tagged makes a blocker of what its tags say.
func (f finder) tagged(id *string, kind string, tags []ec2types.Tag) Blocker {
	t := fromEC2(tags)
	return Blocker{ID: aws.ToString(id), Kind: kind + byName(t), Owner: makerOf(t), ours: claimOf(t, f.cluster) == mine}
}

func (f finder) subnets(ctx context.Context, vpc string) ([]Blocker, error) {
	page, err := f.ec2.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{Filters: filter("vpc-id", vpc)})
	if err != nil {
		return nil, wrap(err, "look for subnets in the way")
	}
	var out []Blocker
	for _, s := range page.Subnets {
		out = append(out, f.tagged(s.SubnetId, "subnet", s.Tags))
	}
	return out, nil
}

func (f finder) tables(ctx context.Context, vpc string) ([]Blocker, error) {
	page, err := f.ec2.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{Filters: filter("vpc-id", vpc)})
	if err != nil {
		return nil, wrap(err, "look for route tables in the way")
	}
	var out []Blocker
	for _, t := range page.RouteTables {
		main := false
		for _, a := range t.Associations {
			main = main || aws.ToBool(a.Main)
		}
		if !main {
			out = append(out, f.tagged(t.RouteTableId, "route table", t.Tags))
		}
	}
	return out, nil
}

func (f finder) internet(ctx context.Context, vpc string) ([]Blocker, error) {
	page, err := f.ec2.DescribeInternetGateways(ctx, &ec2.DescribeInternetGatewaysInput{Filters: filter("attachment.vpc-id", vpc)})
	if err != nil {
		return nil, wrap(err, "look for internet gateways in the way")
	}
	var out []Blocker
	for _, g := range page.InternetGateways {
		out = append(out, f.tagged(g.InternetGatewayId, "internet gateway", g.Tags))
	}
	return out, nil
}

func (f finder) endpoints(ctx context.Context, vpc string) ([]Blocker, error) {
	page, err := f.ec2.DescribeVpcEndpoints(ctx, &ec2.DescribeVpcEndpointsInput{Filters: filter("vpc-id", vpc)})
	if err != nil {
		return nil, wrap(err, "look for VPC endpoints in the way")
	}
	var out []Blocker
	for _, e := range page.VpcEndpoints {
		b := f.tagged(e.VpcEndpointId, "VPC endpoint "+aws.ToString(e.ServiceName), e.Tags)
		b.going = e.State == ec2types.StateDeleting || e.State == ec2types.StateDeleted
		out = append(out, b)
	}
	return out, nil
}
