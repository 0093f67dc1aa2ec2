// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (s *Service) zoneOps() []wire.Op {
	return []wire.Op{
		readOperation(s, "DescribeAvailabilityZones", s.describeAvailabilityZones),
		readOperation(s, "DescribeRegions", s.describeRegions),
		readOperation(s, "DescribeAccountAttributes", s.describeAccountAttributes),
	}
}

// defaultZones are the letters of a region's zones.
func defaultZones(region string) []string {
	if region == "us-east-1" {
		return []string{"a", "b", "c", "d", "e", "f"}
	}

	return []string{"a", "b", "c"}
}

// zoneID is a zone's id, such as use1-az1: the same for every account at AWS.
func (s *Service) zoneID(zone string) string {
	short := strings.NewReplacer(
		"-",
		"",
		"north",
		"n",
		"south",
		"s",
		"east",
		"e",
		"west",
		"w",
		"central",
		"c",
	).Replace(
		s.cfg.Region,
	)

	letter := zone[len(zone)-1]
	return short + "-az" + string('1'+letter-'a')
}

// resolveZone finds a zone by name or id; the first one where neither is given.
func (s *Service) resolveZone(name, id *string) (string, error) {
	for _, l := range s.cfg.Zones {
		zone := s.cfg.Region + l
		if str(name) == zone || str(id) == s.zoneID(zone) || str(name)+str(id) == "" {
			return zone, nil
		}
	}

	return "", wire.Errorf(
		"InvalidParameterValue",
		"Value (%s) for parameter availabilityZone is invalid. Subnets can currently only be created in the following availability zones: %s.",
		str(name)+str(id),
		strings.Join(s.zoneNames(), ", "),
	)
}

// Zones returns the names of the region's availability zones, such as us-east-1a.
func (s *Service) Zones() []string { return s.zoneNames() }

// zoneNames returns the names of the region's availability zones, such as us-east-1a.
func (s *Service) zoneNames() []string {
	var out []string
	for _, l := range s.cfg.Zones {
		out = append(out, s.cfg.Region+l)
	}

	return out
}

func (s *Service) describeAvailabilityZones(
	in *sdk.DescribeAvailabilityZonesInput,
) (*sdk.DescribeAvailabilityZonesOutput, error) {
	all := map[string]*sdk.AvailabilityZone{}
	for _, name := range s.zoneNames() {
		all[name] = &sdk.AvailabilityZone{
			ZoneName:           new(name),
			ZoneId:             new(s.zoneID(name)),
			RegionName:         new(s.cfg.Region),
			State:              new(sdk.AvailabilityZoneStateAvailable),
			ZoneType:           new("availability-zone"),
			GroupName:          new(s.cfg.Region),
			NetworkBorderGroup: new(s.cfg.Region),
			OptInStatus:        new(sdk.AvailabilityZoneOptInStatusOptInNotRequired),
			Messages:           []*sdk.AvailabilityZoneMessage{},
		}
	}

	field := func(z *sdk.AvailabilityZone, name string) ([]string, bool) {
		v, known := map[string]*string{
			"zone-name": z.ZoneName, "zone-id": z.ZoneId, "region-name": z.RegionName, "state": z.State, "zone-type": z.ZoneType,
			"group-name": z.GroupName, "opt-in-status": z.OptInStatus,
		}[name]

		return []string{str(v)}, known
	}

	filters := slices.Clone(in.Filters)
	if len(in.ZoneIds) > 0 {
		filters = append(filters, &sdk.Filter{Name: new("zone-id"), Values: in.ZoneIds})
	}

	for _, n := range strs(in.ZoneNames) {
		if all[n] == nil {
			return nil, invalidParameter("ZoneName", n, "")
		}
	}

	got, _, err := listResources(
		s,
		all,
		describeQuery{ids: in.ZoneNames, filters: filters},
		resourceLister[sdk.AvailabilityZone]{"InvalidParameterValue", "zone", field},
	)

	return &sdk.DescribeAvailabilityZonesOutput{AvailabilityZones: got}, err
}

func (s *Service) describeRegions(in *sdk.DescribeRegionsInput) (*sdk.DescribeRegionsOutput, error) {
	for _, n := range strs(in.RegionNames) {
		if n != s.cfg.Region {
			return nil, invalidParameter("region", n, "This machine has one region")
		}
	}

	return &sdk.DescribeRegionsOutput{Regions: []*sdk.Region{{
		RegionName: new(
			s.cfg.Region,
		), Endpoint: new("ec2." + s.cfg.Region + ".amazonaws.com"), OptInStatus: new("opt-in-not-required"),
	}}}, nil
}

func (s *Service) describeAccountAttributes(
	in *sdk.DescribeAccountAttributesInput,
) (*sdk.DescribeAccountAttributesOutput, error) {
	values := map[string]string{
		"supported-platforms": "VPC", "default-vpc": "none", "max-instances": itoa(s.cfg.Quotas.VCPUs),
		"vpc-max-security-groups-per-interface": itoa(s.cfg.Quotas.GroupsPerENI),
		"max-elastic-ips": itoa(
			s.cfg.Quotas.Addresses,
		), "vpc-max-elastic-ips": itoa(s.cfg.Quotas.Addresses),
	}

	out := &sdk.DescribeAccountAttributesOutput{}
	for _, name := range sortedKeys(values) {
		if len(in.AttributeNames) > 0 && !slices.Contains(strs(in.AttributeNames), name) {
			continue
		}

		out.AccountAttributes = append(out.AccountAttributes, &sdk.AccountAttribute{
			AttributeName: new(
				name,
			), AttributeValues: []*sdk.AccountAttributeValue{{AttributeValue: new(values[name])}},
		})
	}

	return out, nil
}
