// SPDX-License-Identifier: Apache-2.0

package autoscaling

import (
	"slices"
	"strconv"

	sdk "github.com/aws/aws-sdk-go/service/autoscaling"
	ec2sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/record"
)

// maxOverrides is AWS's limit on what a policy lists.
const maxOverrides = 40

// checkMixed refuses a policy that AWS refuses, and completes it with AWS's defaults.
func (s *Service) checkMixed(p *sdk.MixedInstancesPolicy) error {
	overrides := p.LaunchTemplate.Overrides
	if len(overrides) > maxOverrides {
		return validation("The number of launch template overrides must not exceed %d", maxOverrides)
	}
	seen := map[string]bool{}
	for _, o := range overrides {
		kind := record.Str(o.InstanceType)
		switch {
		case kind == "":
			return validation("This region takes overrides that name an instance type")
		case !s.cfg.Cloud.HasType(kind):
			return validation("Invalid instance type: '%s'", kind)
		case seen[kind]:
			return validation("The instance type '%s' is given by two overrides", kind)
		case o.LaunchTemplateSpecification != nil:
			if err := s.settleTemplate(o.LaunchTemplateSpecification); err != nil {
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

func checkDistribution(d *sdk.InstancesDistribution) error {
	d.OnDemandAllocationStrategy = orText(d.OnDemandAllocationStrategy, "prioritized")
	d.SpotAllocationStrategy = orText(d.SpotAllocationStrategy, "lowest-price")
	d.OnDemandBaseCapacity, d.OnDemandPercentageAboveBaseCapacity = orNumber(d.OnDemandBaseCapacity, 0), orNumber(d.OnDemandPercentageAboveBaseCapacity, 100)
	if record.Str(d.SpotMaxPrice) == "" {
		d.SpotMaxPrice = nil
	}
	spot := []string{"lowest-price", "capacity-optimized", "capacity-optimized-prioritized", "price-capacity-optimized"}
	switch {
	case !slices.Contains([]string{"prioritized", "lowest-price"}, *d.OnDemandAllocationStrategy):
		return validation("Invalid OnDemandAllocationStrategy: '%s'", *d.OnDemandAllocationStrategy)
	case !slices.Contains(spot, *d.SpotAllocationStrategy):
		return validation("Invalid SpotAllocationStrategy: '%s'", *d.SpotAllocationStrategy)
	case *d.OnDemandBaseCapacity < 0:
		return validation("OnDemandBaseCapacity must not be negative")
	case *d.OnDemandPercentageAboveBaseCapacity < 0 || *d.OnDemandPercentageAboveBaseCapacity > 100:
		return validation("OnDemandPercentageAboveBaseCapacity must be between 0 and 100")
	case d.SpotInstancePools != nil && *d.SpotAllocationStrategy != "lowest-price":
		return validation("SpotInstancePools option is only available with the lowest-price allocation strategy.")
	}
	if d.SpotMaxPrice != nil {
		if price, err := strconv.ParseFloat(*d.SpotMaxPrice, 64); err != nil || price <= 0 {
			return validation("Invalid Spot max price: '%s'", *d.SpotMaxPrice)
		}
	}
	return nil
}

// choice is one way to launch the next instance of a group.
type choice struct {
	template *sdk.LaunchTemplateSpecification
	kind     string // overrides the template's instance type
	market   *ec2sdk.InstanceMarketOptionsRequest
}

// choices are the ways to launch a group's next instance, best first. All strategies take the overrides in their order
// here: this region has no prices, and as much room for one type as for another.
func (g *group) choices() []choice {
	if g.Shape.LaunchTemplate != nil {
		return []choice{{template: g.Shape.LaunchTemplate}}
	}
	p := g.Shape.MixedInstancesPolicy
	var market *ec2sdk.InstanceMarketOptionsRequest
	if !g.onDemandNext() {
		market = &ec2sdk.InstanceMarketOptionsRequest{
			MarketType: new(ec2sdk.MarketTypeSpot), SpotOptions: &ec2sdk.SpotMarketOptions{MaxPrice: p.InstancesDistribution.SpotMaxPrice},
		}
	}
	var out []choice
	for _, o := range p.LaunchTemplate.Overrides {
		c := choice{template: p.LaunchTemplate.LaunchTemplateSpecification, kind: record.Str(o.InstanceType), market: market}
		if o.LaunchTemplateSpecification != nil {
			c.template = o.LaunchTemplateSpecification
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		out = append(out, choice{template: p.LaunchTemplate.LaunchTemplateSpecification, market: market})
	}
	return out
}

// onDemandNext says whether the next instance is an on-demand one: first the base, and then the percentage of all above
// it, rounded up.
func (g *group) onDemandNext() bool {
	d := g.Shape.MixedInstancesPolicy.InstancesDistribution
	base, have := int(*d.OnDemandBaseCapacity), g.counted()
	onDemand := 0
	for _, i := range have {
		if !g.Spot[record.Str(i.InstanceId)] {
			onDemand++
		}
	}
	above := max(0, max(int(*g.Shape.DesiredCapacity), len(have)+1)-base)
	const percent = 100
	wanted := base + (above*int(*d.OnDemandPercentageAboveBaseCapacity)+percent-1)/percent
	return onDemand < wanted
}
