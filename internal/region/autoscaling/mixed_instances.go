// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"slices"
	"strconv"

	sdk "github.com/aws/aws-sdk-go/service/autoscaling"
	ec2sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// maxOverrides is AWS's limit of launch template overrides in a policy.
const maxOverrides = 40

// resolveMixedPolicy checks a mixed instances policy as AWS does and sets AWS's defaults.
func (s *Service) resolveMixedPolicy(p *sdk.MixedInstancesPolicy) error {
	overrides := p.LaunchTemplate.Overrides
	if len(overrides) > maxOverrides {
		return validationError("The number of launch template overrides must not exceed %d", maxOverrides)
	}

	seen := map[string]bool{}

	for _, o := range overrides {
		kind := sdkshape.String(o.InstanceType)
		switch {
		case kind == "":
			return validationError("This region supports only overrides that set an instance type")
		case !s.cfg.EC2.HasInstanceType(kind):
			return validationError("Invalid instance type: '%s'", kind)
		case seen[kind]:
			return validationError("The instance type '%s' is given by two overrides", kind)
		case o.LaunchTemplateSpecification != nil:
			if err := s.resolveLaunchTemplate(o.LaunchTemplateSpecification); err != nil {
				return err
			}
		}

		seen[kind] = true
	}

	if p.InstancesDistribution == nil {
		p.InstancesDistribution = &sdk.InstancesDistribution{}
	}

	return checkDistribution(p.InstancesDistribution)
}

// checkDistribution checks an instances distribution as AWS does and sets AWS's defaults.
func checkDistribution(d *sdk.InstancesDistribution) error {
	d.OnDemandAllocationStrategy = textOrDefault(d.OnDemandAllocationStrategy, "prioritized")
	d.SpotAllocationStrategy = textOrDefault(d.SpotAllocationStrategy, "lowest-price")
	d.OnDemandBaseCapacity = numberOrDefault(
		d.OnDemandBaseCapacity,
		0,
	)
	d.OnDemandPercentageAboveBaseCapacity = numberOrDefault(
		d.OnDemandPercentageAboveBaseCapacity,
		100,
	)
	if sdkshape.String(d.SpotMaxPrice) == "" {
		d.SpotMaxPrice = nil
	}

	spot := []string{
		"lowest-price",
		"capacity-optimized",
		"capacity-optimized-prioritized",
		"price-capacity-optimized",
	}

	switch {
	case !slices.Contains([]string{"prioritized", "lowest-price"}, *d.OnDemandAllocationStrategy):
		return validationError("Invalid OnDemandAllocationStrategy: '%s'", *d.OnDemandAllocationStrategy)
	case !slices.Contains(spot, *d.SpotAllocationStrategy):
		return validationError("Invalid SpotAllocationStrategy: '%s'", *d.SpotAllocationStrategy)
	case *d.OnDemandBaseCapacity < 0:
		return validationError("OnDemandBaseCapacity must not be negative")
	case *d.OnDemandPercentageAboveBaseCapacity < 0 || *d.OnDemandPercentageAboveBaseCapacity > 100:
		return validationError("OnDemandPercentageAboveBaseCapacity must be between 0 and 100")
	case d.SpotInstancePools != nil && *d.SpotAllocationStrategy != "lowest-price":
		return validationError(
			"SpotInstancePools option is only available with the lowest-price allocation strategy.",
		)
	}

	if d.SpotMaxPrice != nil {
		if price, err := strconv.ParseFloat(*d.SpotMaxPrice, 64); err != nil || price <= 0 {
			return validationError("Invalid Spot max price: '%s'", *d.SpotMaxPrice)
		}
	}

	return nil
}

// launchOption is one way to launch the next instance of a group.
type launchOption struct {
	template      *sdk.LaunchTemplateSpecification
	instanceType  string                               // instead of the template's; empty for the template's
	marketOptions *ec2sdk.InstanceMarketOptionsRequest // nil for an on-demand instance
}

// launchOptions returns the ways to launch the next instance of a group, best first. All allocation
// strategies use the overrides in their order, because this region has no prices and the same capacity for
// every type.
func (g *group) launchOptions() []launchOption {
	if g.Shape.LaunchTemplate != nil {
		return []launchOption{{template: g.Shape.LaunchTemplate}}
	}

	p := g.Shape.MixedInstancesPolicy
	var market *ec2sdk.InstanceMarketOptionsRequest
	if !g.nextIsOnDemand() {
		market = &ec2sdk.InstanceMarketOptionsRequest{
			MarketType:  new(ec2sdk.MarketTypeSpot),
			SpotOptions: &ec2sdk.SpotMarketOptions{MaxPrice: p.InstancesDistribution.SpotMaxPrice},
		}
	}

	var out []launchOption

	for _, o := range p.LaunchTemplate.Overrides {
		c := launchOption{
			template:      p.LaunchTemplate.LaunchTemplateSpecification,
			instanceType:  sdkshape.String(o.InstanceType),
			marketOptions: market,
		}
		if o.LaunchTemplateSpecification != nil {
			c.template = o.LaunchTemplateSpecification
		}

		out = append(out, c)
	}

	if len(out) == 0 {
		out = append(
			out,
			launchOption{template: p.LaunchTemplate.LaunchTemplateSpecification, marketOptions: market},
		)
	}

	return out
}

// nextIsOnDemand reports whether the next instance is an on-demand one: first the base capacity, then the
// percentage of the capacity above it, rounded up.
func (g *group) nextIsOnDemand() bool {
	d := g.Shape.MixedInstancesPolicy.InstancesDistribution
	base := int(*d.OnDemandBaseCapacity)
	have := g.countedInstances()
	onDemand := 0

	for _, i := range have {
		if !g.Spot[sdkshape.String(i.InstanceId)] {
			onDemand++
		}
	}

	above := max(0, max(int(*g.Shape.DesiredCapacity), len(have)+1)-base)
	const percent = 100
	wanted := base + (above*int(*d.OnDemandPercentageAboveBaseCapacity)+percent-1)/percent

	return onDemand < wanted
}
