// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"slices"
	"strconv"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// spotPriceHandlers serves the prices of spot instances.
type spotPriceHandlers struct{ *Service }

func (s spotPriceHandlers) ops() []wire.Operation {
	return []wire.Operation{
		readOperation(s.Service, "DescribeSpotPriceHistory", s.describeSpotPriceHistory),
	}
}

// The region's prices in US dollars an hour. They are not those of AWS: programs only compare them.
const (
	priceOfVCPU   = 0.032
	priceOfGiB    = 0.004
	priceOfGPU    = 0.5
	spotShare     = 0.35 // of the on-demand price, in the first zone
	spotZoneShare = 0.01 // more in each further zone
)

// onDemandPrice returns what an instance costs an hour: more for a larger one, and less if it is burstable.
func (t instanceTypeSpec) onDemandPrice() float64 {
	price := priceOfVCPU*float64(t.VCPU) + priceOfGiB*float64(t.MemoryMiB)/1024
	for _, g := range t.GPUs {
		price += priceOfGPU * float64(g.Count)
	}

	if t.Burstable {
		price *= 0.9
	}

	return price
}

// spotPrice returns what a spot instance costs an hour in a zone.
func (s *Service) spotPrice(kind, zone string) float64 {
	index := max(slices.Index(s.cfg.zoneNames(), zone), 0)

	return s.instanceTypes[kind].onDemandPrice() * (spotShare + spotZoneShare*float64(index))
}

// spotProduct is the only product of the region's instances.
const spotProduct = "Linux/UNIX"

// describeSpotPriceHistory returns one price for each type and zone: the region's prices do not change.
func (s spotPriceHandlers) describeSpotPriceHistory(
	in *sdk.DescribeSpotPriceHistoryInput,
) (*sdk.DescribeSpotPriceHistoryOutput, error) {
	since := s.cfg.Now().UTC()
	if in.StartTime != nil && in.EndTime != nil && in.EndTime.Before(*in.StartTime) {
		return nil, invalidParameter("EndTime", in.EndTime.Format(time.RFC3339), "It is before StartTime")
	}

	if in.EndTime != nil && in.EndTime.Before(since) {
		since = in.EndTime.UTC()
	}

	got, next, err := listResources(
		s.Service,
		s.spotPrices(in, since.Truncate(time.Hour)),
		describeQuery{filters: in.Filters, maxResults: in.MaxResults, nextToken: in.NextToken},
		resourceLister[sdk.SpotPrice]{filterValues: spotPriceFilterValues},
	)

	return &sdk.DescribeSpotPriceHistoryOutput{SpotPriceHistory: got, NextToken: next}, err
}

// spotPrices returns the prices of the types, zone and products of a request, by type and zone.
func (s spotPriceHandlers) spotPrices(in *sdk.DescribeSpotPriceHistoryInput, since time.Time) map[string]*sdk.SpotPrice {
	all := map[string]*sdk.SpotPrice{}
	if wanted := strs(in.ProductDescriptions); len(wanted) > 0 && !slices.Contains(wanted, spotProduct) {
		return all
	}

	kinds := s.instanceTypeNames
	if wanted := strs(in.InstanceTypes); len(wanted) > 0 {
		kinds = slices.DeleteFunc(slices.Clone(kinds), func(k string) bool { return !slices.Contains(wanted, k) })
	}

	for _, kind := range kinds {
		for _, zone := range s.cfg.zoneNames() {
			if in.AvailabilityZone != nil && *in.AvailabilityZone != zone {
				continue
			}

			all[kind+" "+zone] = &sdk.SpotPrice{
				AvailabilityZone:   new(zone),
				InstanceType:       new(kind),
				ProductDescription: new(spotProduct),
				SpotPrice:          new(strconv.FormatFloat(s.spotPrice(kind, zone), 'f', 6, 64)),
				Timestamp:          new(since),
			}
		}
	}

	return all
}

func spotPriceFilterValues(p *sdk.SpotPrice, name string) ([]string, bool) {
	v, known := map[string]*string{
		"availability-zone":   p.AvailabilityZone,
		"instance-type":       p.InstanceType,
		"product-description": p.ProductDescription,
		"spot-price":          p.SpotPrice,
	}[name]

	return []string{str(v)}, known
}
