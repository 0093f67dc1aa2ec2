// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"slices"

	"github.com/aws/aws-sdk-go/aws/endpoints"
	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// zoneHandlers serves availability zones, the region and the account.
type zoneHandlers struct{ *Service }

func (s zoneHandlers) ops() []wire.Operation {
	return []wire.Operation{
		readOperation(s.Service, "DescribeAvailabilityZones", s.describeAvailabilityZones),
		readOperation(s.Service, "DescribeRegions", s.describeRegions),
		readOperation(s.Service, "DescribeAccountAttributes", s.describeAccountAttributes),
	}
}

func (s zoneHandlers) describeAvailabilityZones(
	in *sdk.DescribeAvailabilityZonesInput,
) (*describeZonesOutput, error) {
	all := map[string]*sdk.AvailabilityZone{}
	for _, name := range s.cfg.zoneNames() {
		all[name] = &sdk.AvailabilityZone{
			ZoneName:           new(name),
			ZoneId:             new(s.cfg.zoneID(name)),
			RegionName:         new(s.cfg.Region),
			State:              new(sdk.AvailabilityZoneStateAvailable),
			ZoneType:           new("availability-zone"),
			GroupName:          new(s.cfg.Region + "-zg-1"),
			NetworkBorderGroup: new(s.cfg.Region),
			OptInStatus:        new(sdk.AvailabilityZoneOptInStatusOptInNotRequired),
			Messages:           []*sdk.AvailabilityZoneMessage{},
		}
	}

	field := func(z *sdk.AvailabilityZone, name string) ([]string, bool) {
		v, known := map[string]*string{
			"zone-name":     z.ZoneName,
			"zone-id":       z.ZoneId,
			"region-name":   z.RegionName,
			"state":         z.State,
			"zone-type":     z.ZoneType,
			"group-name":    z.GroupName,
			"opt-in-status": z.OptInStatus,
		}[name]

		return []string{str(v)}, known
	}

	filters := slices.Clone(in.Filters)
	if len(in.ZoneIds) > 0 {
		filters = append(filters, &sdk.Filter{Name: new("zone-id"), Values: in.ZoneIds})
	}

	for _, n := range strs(in.ZoneNames) {
		if all[n] == nil {
			return nil, newErrorf(codeInvalidParameterValue, "Invalid availability zone: [%s]", n)
		}
	}

	got, _, err := listResources(
		s.Service,
		all,
		describeQuery{ids: in.ZoneNames, filters: filters},
		resourceLister[sdk.AvailabilityZone]{codeInvalidParameterValue, "zone", field},
	)

	out := &describeZonesOutput{}
	for _, z := range got {
		out.AvailabilityZones = append(out.AvailabilityZones, &availabilityZone{
			AvailabilityZone: *z,
			GroupLongName:    new(s.cfg.longRegionName() + " 1"),
		})
	}

	return out, err
}

// availabilityZone is a zone with the long name of its group, which the shape of aws-sdk-go v1 does not have.
type availabilityZone struct {
	sdk.AvailabilityZone

	GroupLongName *string `locationName:"groupLongName" type:"string"`
}

type describeZonesOutput struct {
	_ struct{} `type:"structure"`

	AvailabilityZones []*availabilityZone `locationName:"availabilityZoneInfo" locationNameList:"item" type:"list"`
}

// longRegionName returns the name of the region for people, such as US East (N. Virginia); the short one if AWS's SDK does not
// know it.
func (cfg *Config) longRegionName() string {
	for _, p := range endpoints.DefaultPartitions() {
		if r, ok := p.Regions()[cfg.Region]; ok {
			return r.Description()
		}
	}

	return cfg.Region
}

func (s zoneHandlers) describeRegions(in *sdk.DescribeRegionsInput) (*sdk.DescribeRegionsOutput, error) {
	for _, n := range strs(in.RegionNames) {
		if n != s.cfg.Region {
			return nil, invalidParameter("region", n, "The only region is the one of this endpoint")
		}
	}

	return &sdk.DescribeRegionsOutput{
		Regions: []*sdk.Region{{
			RegionName:  new(s.cfg.Region),
			Endpoint:    new("ec2." + s.cfg.Region + ".amazonaws.com"),
			OptInStatus: new("opt-in-not-required"),
		}},
	}, nil
}

func (s zoneHandlers) describeAccountAttributes(
	in *sdk.DescribeAccountAttributesInput,
) (*sdk.DescribeAccountAttributesOutput, error) {
	defaultVPC := "none"
	if v := s.st.defaultVPC(); v != nil {
		defaultVPC = str(v.VpcId)
	}

	values := map[string]string{
		"supported-platforms":                   "VPC",
		"default-vpc":                           defaultVPC,
		"max-instances":                         itoa(s.cfg.Quotas.VCPUs),
		"vpc-max-security-groups-per-interface": itoa(s.cfg.Quotas.GroupsPerENI),
		"max-elastic-ips":                       itoa(s.cfg.Quotas.Addresses),
		"vpc-max-elastic-ips":                   itoa(s.cfg.Quotas.Addresses),
	}

	out := &sdk.DescribeAccountAttributesOutput{}
	for _, name := range sortedKeys(values) {
		if len(in.AttributeNames) > 0 && !slices.Contains(strs(in.AttributeNames), name) {
			continue
		}

		out.AccountAttributes = append(out.AccountAttributes, &sdk.AccountAttribute{
			AttributeName:   new(name),
			AttributeValues: []*sdk.AccountAttributeValue{{AttributeValue: new(values[name])}},
		})
	}

	return out, nil
}
