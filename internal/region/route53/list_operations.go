// SPDX-License-Identifier: Apache-2.0

package route53

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/route53"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/state"
)

// The maximum number of entries on a page (docs.aws.amazon.com/Route53/latest/APIReference), and the number without
// MaxItems in a request, as recorded.
const (
	maxZonesPerPage   = 100
	maxRecordsPerPage = 300
	usualPerPage      = 100
)

// parsePageSize returns the number of entries on a page: the usual one unless a request sets another, at most most.
func parsePageSize(requested *string, most int) (int, error) {
	if requested == nil {
		return usualPerPage, nil
	}

	n, err := strconv.Atoi(*requested)
	if err != nil || n < 1 {
		return 0, newErrorf(codeInvalidInput, "Invalid value for MaxItems: %s", *requested)
	}

	return min(n, most), nil
}

// pageFrom returns a page of n keys that begins with start, and the first key of the next page; empty for the
// last page.
func pageFrom(keys []string, start string, n int) (page []string, next string) {
	at, _ := slices.BinarySearch(keys, start)
	keys = keys[at:]
	if len(keys) > n {
		return keys[:n], keys[n]
	}

	return keys, ""
}

func (s *Service) listHostedZones(in *sdk.ListHostedZonesInput) (*sdk.ListHostedZonesOutput, error) {
	n, err := parsePageSize(in.MaxItems, maxZonesPerPage)
	if err != nil {
		return nil, err
	}

	page, next := pageFrom(sdkshape.SortedKeys(s.st.Zones), sdkshape.String(in.Marker), n)
	out := &sdk.ListHostedZonesOutput{
		HostedZones: []*sdk.HostedZone{},
		IsTruncated: new(next != ""),
		MaxItems:    new(strconv.Itoa(n)),
		Marker:      in.Marker,
	}
	if next != "" {
		out.NextMarker = &next
	}

	for _, id := range page {
		out.HostedZones = append(out.HostedZones, s.st.Zones[id].toHostedZone())
	}

	return out, nil
}

func (s *Service) listHostedZonesByName(
	in *sdk.ListHostedZonesByNameInput,
) (*sdk.ListHostedZonesByNameOutput, error) {
	n, err := parsePageSize(in.MaxItems, maxZonesPerPage)
	if err != nil {
		return nil, err
	}

	byName := map[string]*hostedZone{}
	for id, z := range s.st.Zones {
		byName[reverseLabels(*z.Shape.Name)+" "+id] = z
	}

	start := ""
	if in.DNSName != nil {
		start = reverseLabels(normalizeName(*in.DNSName)) + " " + trimIDPath(sdkshape.String(in.HostedZoneId))
	}

	page, next := pageFrom(sdkshape.SortedKeys(byName), start, n)
	out := &sdk.ListHostedZonesByNameOutput{
		HostedZones:  []*sdk.HostedZone{},
		IsTruncated:  new(next != ""),
		MaxItems:     new(strconv.Itoa(n)),
		DNSName:      in.DNSName,
		HostedZoneId: in.HostedZoneId,
	}
	if next != "" {
		z := byName[next]
		out.NextDNSName = z.Shape.Name
		out.NextHostedZoneId = new(trimIDPath(*z.Shape.Id))
	}

	for _, k := range page {
		out.HostedZones = append(out.HostedZones, byName[k].toHostedZone())
	}

	return out, nil
}

func (s *Service) listHostedZonesByVPC(
	in *sdk.ListHostedZonesByVPCInput,
) (*sdk.ListHostedZonesByVPCOutput, error) {
	n, err := parsePageSize(in.MaxItems, maxZonesPerPage)
	if err != nil {
		return nil, err
	}

	ids := slices.DeleteFunc(sdkshape.SortedKeys(s.st.Zones), func(id string) bool {
		here := sdkshape.String(in.VPCRegion) == s.cfg.Region
		return !here || !s.st.Zones[id].hasVPC(sdkshape.String(in.VPCId))
	})
	page, next := pageFrom(ids, sdkshape.String(in.NextToken), n)
	out := &sdk.ListHostedZonesByVPCOutput{
		HostedZoneSummaries: []*sdk.HostedZoneSummary{},
		MaxItems:            new(strconv.Itoa(n)),
	}
	if next != "" {
		out.NextToken = &next
	}

	for _, id := range page {
		out.HostedZoneSummaries = append(out.HostedZoneSummaries, &sdk.HostedZoneSummary{
			HostedZoneId: &id,
			Name:         s.st.Zones[id].Shape.Name,
			Owner:        &sdk.HostedZoneOwner{OwningAccount: new(s.cfg.Account)},
		})
	}

	return out, nil
}

func (s *Service) listResourceRecordSets(
	in *sdk.ListResourceRecordSetsInput,
) (*sdk.ListResourceRecordSetsOutput, error) {
	z, err := s.findHostedZone(in.HostedZoneId)
	if err != nil {
		return nil, err
	}

	n, err := parsePageSize(in.MaxItems, maxRecordsPerPage)
	if err != nil {
		return nil, err
	}

	start := ""

	switch {
	case in.StartRecordName == nil && in.StartRecordType != nil:
		return nil, newErrorf(codeInvalidInput, "The type cannot be specified without the name")
	case in.StartRecordName != nil:
		start = strings.TrimRight(
			recordKey(
				normalizeName(*in.StartRecordName),
				sdkshape.String(in.StartRecordType),
				sdkshape.String(in.StartRecordIdentifier),
			),
			" ",
		)
	}

	page, next := pageFrom(sdkshape.SortedKeys(z.Records), start, n)
	out := &sdk.ListResourceRecordSetsOutput{
		ResourceRecordSets: []*sdk.ResourceRecordSet{},
		IsTruncated:        new(next != ""),
		MaxItems:           new(strconv.Itoa(n)),
	}
	if next != "" {
		r := z.Records[next]
		out.NextRecordName = r.Name
		out.NextRecordType = r.Type
		out.NextRecordIdentifier = r.SetIdentifier
	}

	for _, k := range page {
		out.ResourceRecordSets = append(out.ResourceRecordSets, z.Records[k])
	}

	return out, nil
}

func toResourceTagSet(z *hostedZone) *sdk.ResourceTagSet {
	out := &sdk.ResourceTagSet{
		ResourceType: new("hostedzone"),
		ResourceId:   new(trimIDPath(*z.Shape.Id)),
		Tags:         []*sdk.Tag{},
	}

	for _, k := range sdkshape.SortedKeys(z.Tags) {
		out.Tags = append(out.Tags, &sdk.Tag{Key: &k, Value: new(z.Tags[k])})
	}

	return out
}

// maxResourceID is the greatest length of an id in requests about tags (the service's model in the SDKs).
const maxResourceID = 32

// findTaggedZone returns the zone of a request about tags. Other than most requests, these do not take an id with the
// path /hostedzone/.
func (s *Service) findTaggedZone(id *string) (*hostedZone, error) {
	given := sdkshape.String(id)
	if len(given) > maxResourceID {
		return nil, newErrorf(
			codeInvalidInput,
			"1 validation error detected: Value '%s' at 'resourceId' failed to satisfy constraint: "+
				"Member must have length less than or equal to %d",
			given,
			maxResourceID,
		)
	}

	if z := s.st.Zones[given]; z != nil {
		return z, nil
	}

	return nil, newNotFoundError(given)
}

func (s *Service) listTagsForResource(
	in *sdk.ListTagsForResourceInput,
) (*sdk.ListTagsForResourceOutput, error) {
	z, err := s.findTaggedZone(in.ResourceId)
	if err != nil {
		return nil, err
	}

	return &sdk.ListTagsForResourceOutput{ResourceTagSet: toResourceTagSet(z)}, nil
}

func (s *Service) listTagsForResources(
	in *sdk.ListTagsForResourcesInput,
) (*sdk.ListTagsForResourcesOutput, error) {
	const most = 10
	if len(in.ResourceIds) > most {
		return nil, newErrorf(
			codeInvalidInput,
			"1 validation error detected: Value at 'resourceIds' failed to satisfy constraint: "+
				"Member must have length less than or equal to 10",
		)
	}

	out := &sdk.ListTagsForResourcesOutput{ResourceTagSets: []*sdk.ResourceTagSet{}}

	for _, id := range in.ResourceIds {
		z, err := s.findHostedZone(id)
		if err != nil {
			return nil, err
		}

		out.ResourceTagSets = append(out.ResourceTagSets, toResourceTagSet(z))
	}

	return out, nil
}

func (s *Service) changeTagsForResource(
	in *sdk.ChangeTagsForResourceInput,
) (*sdk.ChangeTagsForResourceOutput, error) {
	z, err := s.findTaggedZone(in.ResourceId)
	if err != nil {
		return nil, err
	}

	if err := checkTagChange(in); err != nil {
		return nil, err
	}

	for _, t := range in.AddTags {
		z.Tags[sdkshape.String(t.Key)] = sdkshape.String(t.Value)
	}

	for _, k := range in.RemoveTagKeys {
		delete(z.Tags, sdkshape.String(k))
	}

	return &sdk.ChangeTagsForResourceOutput{}, nil
}

// SetSystemTags sets tags of a zone whose keys begin with aws:, such as aws:cloudformation:stack-name. Requests cannot
// set them. SetSystemTags does nothing if the zone does not exist.
func (s *Service) SetSystemTags(id string, tags map[string]string) {
	_ = s.store.WithLock(func() error { // if the save fails, the next change saves the tags
		if z := s.st.Zones[trimIDPath(id)]; z != nil {
			maps.Copy(z.Tags, tags)
			s.store.MarkChanged()
		}

		return nil
	})
}

// SaveTo saves the service's state to another backend, for a snapshot.
func (s *Service) SaveTo(to state.Backend) error { return s.store.SaveTo(to) }
