// SPDX-License-Identifier: Apache-2.0

// Package servicequotas is the region's Service Quotas: it tells the limits that EC2 of the region really enforces. It
// raises none.
package servicequotas

import (
	"context"
	"slices"

	sdk "github.com/aws/aws-sdk-go/service/servicequotas"

	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Config is what the service needs from outside.
type Config struct {
	Region, Account string
	// EC2 are the limits that are told. A zero field is that of a new account.
	EC2 ec2.Quotas
}

// quota is a limit with its own and the usual value. Codes and names are those that AWS publishes.
type quota struct {
	service, serviceName, code, name string
	value, defaultValue              int
	adjustable                       bool
}

func (c Config) allQuotas() []quota {
	own := c.EC2.WithDefaults()
	usual := ec2.DefaultQuotas()
	const cloud = "Amazon Elastic Compute Cloud (Amazon EC2)"
	const network = "Amazon Virtual Private Cloud (Amazon VPC)"

	return []quota{
		{"ec2", cloud, "L-0263D0A3", "EC2-VPC Elastic IPs", own.Addresses, usual.Addresses, true},
		{
			"ec2",
			cloud,
			"L-1216C47A",
			"Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
			own.VCPUs,
			usual.VCPUs,
			true,
		},
		{
			"vpc",
			network,
			"L-0EA8095F",
			"Inbound or outbound rules per security group",
			own.RulesPerGroup,
			usual.RulesPerGroup,
			true,
		},
		{
			"vpc",
			network,
			"L-2AFB9258",
			"Security groups per network interface",
			own.GroupsPerENI,
			usual.GroupsPerENI,
			true,
		},
		{"vpc", network, "L-407747CB", "Subnets per VPC", own.SubnetsPerVPC, usual.SubnetsPerVPC, true},
		{"vpc", network, "L-589F43AA", "Route tables per VPC", own.TablesPerVPC, usual.TablesPerVPC, true},
		{
			"vpc",
			network,
			"L-93826ACB",
			"Routes per route table",
			own.RoutesPerTable,
			usual.RoutesPerTable,
			true,
		},
		{
			"vpc",
			network,
			"L-A4707A72",
			"Internet gateways per Region",
			own.InternetGateways,
			usual.InternetGateways,
			true,
		},
		{"vpc", network, "L-F678F1CE", "VPCs per Region", own.VPCs, usual.VPCs, true},
		{
			"vpc",
			network,
			"L-FE5A380F",
			"NAT gateways per Availability Zone",
			own.NATsPerZone,
			usual.NATsPerZone,
			true,
		},
	}
}

// Service answers for a region.
func Service(cfg Config) wire.Service {
	return wire.Service{
		Name:      "servicequotas",
		Protocol:  wire.JSON,
		Version:   "2019-06-24",
		Target:    "ServiceQuotasV20190624",
		Authorize: wire.AuthorizedInHandlers,
		Ops: []wire.Op{
			wire.Operation("GetServiceQuota", cfg.getServiceQuota),
			wire.Operation("GetAWSDefaultServiceQuota", cfg.getAWSDefaultServiceQuota),
			wire.Operation("ListServiceQuotas", cfg.listServiceQuotas),
			wire.Operation("ListAWSDefaultServiceQuotas", cfg.listAWSDefaultServiceQuotas),
		},
	}
}

// authorizeAction asks IAM. These operations know no narrower resource than all.
func authorizeAction(ctx context.Context, action string) error {
	return wire.Authorize(ctx, wire.Check{Action: "servicequotas:" + action, Resource: "*"})
}

func (c Config) toServiceQuota(q quota, value int, account string) *sdk.ServiceQuota {
	return &sdk.ServiceQuota{
		ServiceCode:         &q.service,
		ServiceName:         &q.serviceName,
		QuotaCode:           &q.code,
		QuotaName:           &q.name,
		Value:               new(float64(value)),
		Unit:                new("None"),
		Adjustable:          &q.adjustable,
		GlobalQuota:         new(false),
		QuotaAppliedAtLevel: new(sdk.AppliedLevelEnumAccount),
		QuotaArn:            new("arn:aws:servicequotas:" + c.Region + ":" + account + ":" + q.service + "/" + q.code),
	}
}

func (c Config) findQuota(service, code *string) (quota, error) {
	all := c.allQuotas()
	at := slices.IndexFunc(all, func(q quota) bool { return q.service == *service && q.code == *code })
	if at < 0 {
		return quota{}, wire.Errorf(
			"NoSuchResourceException",
			"The request failed because the specified service quota %s of %s does not exist.",
			*code,
			*service,
		)
	}

	return all[at], nil
}

func (c Config) serviceQuotas(service string) ([]quota, error) {
	mine := slices.DeleteFunc(c.allQuotas(), func(q quota) bool { return q.service != service })
	if len(mine) == 0 {
		return nil, wire.Errorf(
			"NoSuchResourceException",
			"The request failed because the specified service %s does not exist.",
			service,
		)
	}

	return mine, nil
}

func (c Config) getServiceQuota(
	ctx context.Context,
	in *sdk.GetServiceQuotaInput,
) (*sdk.GetServiceQuotaOutput, error) {
	if err := authorizeAction(ctx, "GetServiceQuota"); err != nil {
		return nil, err
	}

	q, err := c.findQuota(in.ServiceCode, in.QuotaCode)
	if err != nil {
		return nil, err
	}

	return &sdk.GetServiceQuotaOutput{Quota: c.toServiceQuota(q, q.value, c.Account)}, nil
}

func (c Config) getAWSDefaultServiceQuota(
	ctx context.Context,
	in *sdk.GetAWSDefaultServiceQuotaInput,
) (*sdk.GetAWSDefaultServiceQuotaOutput, error) {
	if err := authorizeAction(ctx, "GetAWSDefaultServiceQuota"); err != nil {
		return nil, err
	}

	q, err := c.findQuota(in.ServiceCode, in.QuotaCode)
	if err != nil {
		return nil, err
	}

	return &sdk.GetAWSDefaultServiceQuotaOutput{Quota: c.toServiceQuota(q, q.defaultValue, "")}, nil
}

func (c Config) listServiceQuotas(
	ctx context.Context,
	in *sdk.ListServiceQuotasInput,
) (*sdk.ListServiceQuotasOutput, error) {
	if err := authorizeAction(ctx, "ListServiceQuotas"); err != nil {
		return nil, err
	}

	mine, err := c.serviceQuotas(*in.ServiceCode)
	out := &sdk.ListServiceQuotasOutput{Quotas: []*sdk.ServiceQuota{}}
	for _, q := range mine {
		out.Quotas = append(out.Quotas, c.toServiceQuota(q, q.value, c.Account))
	}

	return out, err
}

func (c Config) listAWSDefaultServiceQuotas(
	ctx context.Context,
	in *sdk.ListAWSDefaultServiceQuotasInput,
) (*sdk.ListAWSDefaultServiceQuotasOutput, error) {
	if err := authorizeAction(ctx, "ListAWSDefaultServiceQuotas"); err != nil {
		return nil, err
	}

	mine, err := c.serviceQuotas(*in.ServiceCode)
	out := &sdk.ListAWSDefaultServiceQuotasOutput{Quotas: []*sdk.ServiceQuota{}}
	for _, q := range mine {
		out.Quotas = append(out.Quotas, c.toServiceQuota(q, q.defaultValue, ""))
	}

	return out, err
}
