// SPDX-License-Identifier: Apache-2.0

// Package servicequotas is the region's Service Quotas. It returns the quotas that EC2, Elastic Load Balancing,
// CloudFormation and IAM of the region enforce, and cannot increase them.
package servicequotas

import (
	"cmp"
	"context"
	"slices"

	sdk "github.com/aws/aws-sdk-go/service/servicequotas"

	"github.com/slipway-k8s/slipway/internal/region/cloudformation"
	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/elbv2"
	"github.com/slipway-k8s/slipway/internal/region/iam"
	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Config configures the service.
type Config struct {
	Region  string // such as us-east-1
	Account string // account id of 12 digits
	Quotas  Quotas // the quotas of the region; the zero fields are those of a new account
}

// Quotas are the quotas that the services of the region enforce.
type Quotas struct {
	EC2           ec2.Quotas // with those of VPCs
	IAM           iam.Quotas
	LoadBalancers int // network load balancers
	Stacks        int // of CloudFormation
}

// withDefaults returns q with each zero field set to the quota of a new account.
func (q Quotas) withDefaults() Quotas {
	return Quotas{
		EC2:           q.EC2.WithDefaults(),
		IAM:           q.IAM.WithDefaults(),
		LoadBalancers: cmp.Or(q.LoadBalancers, elbv2.DefaultMaxBalancers),
		Stacks:        cmp.Or(q.Stacks, cloudformation.DefaultMaxStacks),
	}
}

// quota is one quota of the region. Codes and names are those that AWS publishes.
type quota struct {
	service string           // service code: ec2, vpc, elasticloadbalancing, cloudformation or iam
	code    string           // such as L-F678F1CE
	name    string           // such as VPCs per Region
	limit   func(Quotas) int // its value
}

// isGlobal reports whether the quota is one for all regions.
func (q quota) isGlobal() bool { return q.service == "iam" }

// globalQuotaRegion is the only region in which AWS lists global quotas.
const globalQuotaRegion = "us-east-1"

// quotas returns the quotas that Service Quotas has in the region. AWS can adjust all of them.
func (c Config) quotas() []quota {
	all := slices.Concat(ec2Quotas(), vpcQuotas(), otherQuotas())

	return slices.DeleteFunc(all, func(q quota) bool { return q.isGlobal() && c.Region != globalQuotaRegion })
}

// otherQuotas returns the quotas of Elastic Load Balancing, CloudFormation and IAM.
func otherQuotas() []quota {
	return []quota{
		{
			service: "elasticloadbalancing",
			code:    "L-69A177A2",
			name:    "Network Load Balancers per Region",
			limit:   func(q Quotas) int { return q.LoadBalancers },
		},
		{
			service: "cloudformation",
			code:    "L-0485CB21",
			name:    "Stack count",
			limit:   func(q Quotas) int { return q.Stacks },
		},
		{
			service: "iam",
			code:    "L-FE177D64",
			name:    "Roles per account",
			limit:   func(q Quotas) int { return q.IAM.Roles },
		},
		{
			service: "iam",
			code:    "L-6E65F664",
			name:    "Instance profiles per account",
			limit:   func(q Quotas) int { return q.IAM.InstanceProfiles },
		},
	}
}

func ec2Quotas() []quota {
	return []quota{
		{
			service: "ec2",
			code:    "L-0263D0A3",
			name:    "EC2-VPC Elastic IPs",
			limit:   func(q Quotas) int { return q.EC2.Addresses },
		},
		{
			service: "ec2",
			code:    "L-1216C47A",
			name:    "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
			limit:   func(q Quotas) int { return q.EC2.VCPUs },
		},
		{
			service: "ec2",
			code:    "L-FB451C26",
			name:    "Launch templates",
			limit:   func(q Quotas) int { return q.EC2.Templates },
		},
		{
			service: "ec2",
			code:    "L-142B4294",
			name:    "Launch template versions",
			limit:   func(q Quotas) int { return q.EC2.TemplateVersions },
		},
	}
}

func vpcQuotas() []quota {
	return []quota{
		{
			service: "vpc",
			code:    "L-0EA8095F",
			name:    "Inbound or outbound rules per security group",
			limit:   func(q Quotas) int { return q.EC2.RulesPerGroup },
		},
		{
			service: "vpc",
			code:    "L-2AFB9258",
			name:    "Security groups per network interface",
			limit:   func(q Quotas) int { return q.EC2.GroupsPerENI },
		},
		{
			service: "vpc",
			code:    "L-407747CB",
			name:    "Subnets per VPC",
			limit:   func(q Quotas) int { return q.EC2.SubnetsPerVPC },
		},
		{
			service: "vpc",
			code:    "L-589F43AA",
			name:    "Route tables per VPC",
			limit:   func(q Quotas) int { return q.EC2.TablesPerVPC },
		},
		{
			service: "vpc",
			code:    "L-93826ACB",
			name:    "Routes per route table",
			limit:   func(q Quotas) int { return q.EC2.RoutesPerTable },
		},
		{
			service: "vpc",
			code:    "L-A4707A72",
			name:    "Internet gateways per Region",
			limit:   func(q Quotas) int { return q.EC2.InternetGateways },
		},
		{
			service: "vpc",
			code:    "L-F678F1CE",
			name:    "VPCs per Region",
			limit:   func(q Quotas) int { return q.EC2.VPCs },
		},
		{
			service: "vpc",
			code:    "L-FE5A380F",
			name:    "NAT gateways per Availability Zone",
			limit:   func(q Quotas) int { return q.EC2.NATsPerZone },
		},
	}
}

// serviceName returns the name of a service by its code.
func serviceName(code string) string {
	return map[string]string{
		"cloudformation":       "AWS CloudFormation",
		"ec2":                  "Amazon Elastic Compute Cloud (Amazon EC2)",
		"elasticloadbalancing": "Elastic Load Balancing (ELB)",
		"iam":                  "AWS Identity and Access Management (IAM)",
		"vpc":                  "Amazon Virtual Private Cloud (Amazon VPC)",
	}[code]
}

// Service returns the operations of Service Quotas for the endpoint that serves them.
func Service(cfg Config) wire.Service {
	return wire.Service{
		Name:         "servicequotas",
		Protocol:     wire.JSONProtocol,
		Version:      "2019-06-24",
		TargetPrefix: "ServiceQuotasV20190624",
		Authorize:    wire.AuthorizedInHandlers,
		Operations: []wire.Operation{
			wire.NewOperation("GetServiceQuota", cfg.getServiceQuota),
			wire.NewOperation("GetAWSDefaultServiceQuota", cfg.getAWSDefaultServiceQuota),
			wire.NewOperation("ListServiceQuotas", cfg.listServiceQuotas),
			wire.NewOperation("ListAWSDefaultServiceQuotas", cfg.listAWSDefaultServiceQuotas),
		},
	}
}

// authorizeAction asks IAM whether the caller may do an action, on all resources: these operations have no
// narrower ones.
func authorizeAction(ctx context.Context, action string) error {
	return wire.Authorize(ctx, wire.AccessCheck{Action: "servicequotas:" + action, Resource: "*"})
}

// toServiceQuota returns a quota in the form of answers; account is empty for a default quota.
func (c Config) toServiceQuota(q quota, value int, account string) *sdk.ServiceQuota {
	arn := "arn:aws:servicequotas:" + c.Region + ":" + account + ":" + q.service + "/" + q.code

	return &sdk.ServiceQuota{
		ServiceCode:         &q.service,
		ServiceName:         new(serviceName(q.service)),
		QuotaCode:           &q.code,
		QuotaName:           &q.name,
		Value:               new(float64(value)),
		Unit:                new("None"),
		Adjustable:          new(true),
		GlobalQuota:         new(q.isGlobal()),
		QuotaAppliedAtLevel: new(sdk.AppliedLevelEnumAccount),
		QuotaArn:            new(arn),
	}
}

// ownQuota returns the value of a quota in this region.
func (c Config) ownQuota(q quota) *sdk.ServiceQuota {
	return c.toServiceQuota(q, q.limit(c.Quotas.withDefaults()), c.Account)
}

// defaultQuota returns the value of a quota in a new account.
func (c Config) defaultQuota(q quota) *sdk.ServiceQuota {
	return c.toServiceQuota(q, q.limit(Quotas{}.withDefaults()), "")
}

// findQuota returns the quota of a service and a quota code.
func (c Config) findQuota(service, code *string) (quota, error) {
	all := c.quotas()
	at := slices.IndexFunc(all, func(q quota) bool { return q.service == *service && q.code == *code })
	if at < 0 {
		return quota{}, newErrorf(
			codeNoSuchResource,
			"The request failed because the specified service quota %s of %s does not exist.",
			*code,
			*service,
		)
	}

	return all[at], nil
}

// serviceQuotas returns all quotas of a service.
func (c Config) serviceQuotas(service string) ([]quota, error) {
	mine := slices.DeleteFunc(c.quotas(), func(q quota) bool { return q.service != service })
	if len(mine) == 0 {
		return nil, newErrorf(
			codeNoSuchResource,
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

	return &sdk.GetServiceQuotaOutput{Quota: c.ownQuota(q)}, nil
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

	return &sdk.GetAWSDefaultServiceQuotaOutput{Quota: c.defaultQuota(q)}, nil
}

func (c Config) listServiceQuotas(
	ctx context.Context,
	in *sdk.ListServiceQuotasInput,
) (*sdk.ListServiceQuotasOutput, error) {
	if err := authorizeAction(ctx, "ListServiceQuotas"); err != nil {
		return nil, err
	}

	mine, err := c.serviceQuotas(*in.ServiceCode)
	if err != nil {
		return nil, err
	}

	page, next, err := pageOf(mine, in.NextToken, in.MaxResults)
	out := &sdk.ListServiceQuotasOutput{Quotas: []*sdk.ServiceQuota{}, NextToken: next}
	for _, q := range page {
		out.Quotas = append(out.Quotas, c.ownQuota(q))
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
	if err != nil {
		return nil, err
	}

	page, next, err := pageOf(mine, in.NextToken, in.MaxResults)
	out := &sdk.ListAWSDefaultServiceQuotasOutput{Quotas: []*sdk.ServiceQuota{}, NextToken: next}
	for _, q := range page {
		out.Quotas = append(out.Quotas, c.defaultQuota(q))
	}

	return out, err
}

// pageOf returns a page of quotas, and the token of the next page; nil at the end.
func pageOf(all []quota, token *string, most *int64) ([]quota, *string, error) {
	const largestPage = 100
	size := int64(largestPage)
	if most != nil {
		size = *most
	}

	if size < 1 || size > largestPage {
		return nil, nil, newErrorf(
			codeIllegalArgument,
			"MaxResults %d must be from 1 to %d.",
			size,
			largestPage,
		)
	}

	byCode := map[string]quota{}
	for _, q := range all {
		byCode[q.code] = q
	}

	bad := newError(codeInvalidPaginationToken)
	codes, next, err := sdkshape.Paginate(sdkshape.SortedKeys(byCode), size, token, bad)
	page := make([]quota, 0, len(codes))
	for _, code := range codes {
		page = append(page, byCode[code])
	}

	return page, next, err
}
