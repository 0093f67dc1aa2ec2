// SPDX-License-Identifier: Apache-2.0

package route53

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/route53"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// recordKey returns the key of a record in [hostedZone].Records.
func recordKey(name, kind, identifier string) string {
	return reverseLabels(name) + " " + kind + " " + identifier
}

func recordSetKey(r *sdk.ResourceRecordSet) string {
	return recordKey(*r.Name, sdkshape.String(r.Type), sdkshape.String(r.SetIdentifier))
}

func (z *hostedZone) putRecord(r *sdk.ResourceRecordSet) { z.Records[recordSetKey(r)] = r }

// changeResourceRecordSets applies a batch of changes: all of them or none. The error lists every change that
// is invalid.
func (s *Service) changeResourceRecordSets(
	in *sdk.ChangeResourceRecordSetsInput,
) (*sdk.ChangeResourceRecordSetsOutput, error) {
	z, err := s.findHostedZone(in.HostedZoneId)
	if err != nil {
		return nil, err
	}

	if err := checkBatchSize(in.ChangeBatch.Changes); err != nil {
		return nil, err
	}

	after := &hostedZone{Shape: z.Shape, VPCs: z.VPCs, Records: maps.Clone(z.Records)}
	var problems []string

	for _, c := range in.ChangeBatch.Changes {
		r := sdkshape.CloneShape(c.ResourceRecordSet)
		r.Name = new(normalizeName(sdkshape.String(r.Name)))
		if a := r.AliasTarget; a != nil {
			a.DNSName = new(normalizeName(sdkshape.String(a.DNSName)))
			a.HostedZoneId = new(trimIDPath(sdkshape.String(a.HostedZoneId)))
		}

		if problem := s.applyChange(after, sdkshape.String(c.Action), r); problem != "" {
			problems = append(problems, problem)
		}
	}

	if len(problems) == 0 && after.Records[recordKey(*z.Shape.Name, sdk.RRTypeSoa, "")] == nil {
		problems = append(problems, "A HostedZone must contain exactly one SOA record.")
	}

	if len(problems) > 0 {
		return nil, newErrorf(codeInvalidChangeBatch, "[%s]", strings.Join(problems, ", "))
	}

	z.Records = after.Records

	return &sdk.ChangeResourceRecordSetsOutput{ChangeInfo: s.newChange(in.ChangeBatch.Comment)}, nil
}

// applyChange applies one change to z. It returns the problem with the change, or "" if it is valid.
func (s *Service) applyChange(z *hostedZone, action string, r *sdk.ResourceRecordSet) string {
	existing := z.Records[recordSetKey(r)]
	description := fmt.Sprintf("resource record set [name='%s', type='%s'", *r.Name, sdkshape.String(r.Type))
	if r.SetIdentifier != nil {
		description += ", set identifier='" + *r.SetIdentifier + "'"
	}

	description += "]"

	switch {
	case action == sdk.ChangeActionDelete && existing == nil:
		return "Tried to delete " + description + " but it was not found"
	case action == sdk.ChangeActionDelete && existing.String() != r.String():
		return "Tried to delete " + description + " but the values provided do not match the current values"
	case action == sdk.ChangeActionDelete:
		delete(z.Records, recordSetKey(r))
		return ""
	case action == sdk.ChangeActionCreate && existing != nil:
		return "Tried to create " + description + " but it already exists"
	}

	if problem := s.checkRecord(z, r); problem != "" {
		return problem
	}

	z.putRecord(r)

	return ""
}

// checkRecord returns why a zone cannot contain a record, or "" if it can.
func (s *Service) checkRecord(z *hostedZone, r *sdk.ResourceRecordSet) string {
	name := *r.Name
	policies := []bool{
		r.Weight != nil,
		r.MultiValueAnswer != nil,
		r.Region != nil,
		r.Failover != nil,
		r.GeoLocation != nil,
	}

	switch {
	case !isValidName(name):
		return fmt.Sprintf("Invalid Resource Record: '%s' is not a valid name", name)
	case name != *z.Shape.Name && !strings.HasSuffix(name, "."+*z.Shape.Name):
		return fmt.Sprintf("RRSet with DNS name %s is not permitted in zone %s", name, *z.Shape.Name)
	case r.SetIdentifier != nil && !slices.Contains(policies, true):
		return "A resource record set with a SetIdentifier must have a routing policy"
	case r.Weight != nil && r.SetIdentifier == nil:
		return "Missing field 'SetIdentifier' in ResourceRecordSet"
	}

	for _, other := range z.Records {
		if problem := z.checkConflict(other, r); problem != "" {
			return problem
		}
	}

	if r.AliasTarget != nil {
		return s.checkAlias(z, r)
	}

	return checkValues(r)
}

// checkConflict returns why a zone cannot contain both records, or "" if it can.
func (z *hostedZone) checkConflict(other, r *sdk.ResourceRecordSet) string {
	name := *r.Name
	kind := sdkshape.String(r.Type)
	if *other.Name != name || recordSetKey(other) == recordSetKey(r) {
		return ""
	}

	if sdkshape.String(other.Type) == kind && (other.SetIdentifier == nil) != (r.SetIdentifier == nil) {
		return fmt.Sprintf(
			"RRSet with DNS name %s, type %s, SetIdentifier %s cannot be created because "+
				"a record set with another routing policy exists with the same name and type.",
			name,
			kind,
			sdkshape.String(r.SetIdentifier),
		)
	}

	if (sdkshape.String(other.Type) == sdk.RRTypeCname) != (kind == sdk.RRTypeCname) {
		return fmt.Sprintf(
			"RRSet of type CNAME with DNS name %s is not permitted as "+
				"it conflicts with other records with the same DNS name in zone %s",
			name,
			*z.Shape.Name,
		)
	}

	return ""
}

// checkAlias returns why an alias record is invalid, or "" if it is valid.
func (s *Service) checkAlias(z *hostedZone, r *sdk.ResourceRecordSet) string {
	targetName := sdkshape.String(r.AliasTarget.DNSName)
	targetZone := sdkshape.String(r.AliasTarget.HostedZoneId)
	isOwnZone := targetZone == trimIDPath(*z.Shape.Id)
	prefix := fmt.Sprintf(
		"Tried to create an alias that targets %s, type %s in zone %s, but ",
		targetName,
		sdkshape.String(r.Type),
		targetZone,
	)

	switch {
	case r.TTL != nil || len(r.ResourceRecords) > 0:
		return "An alias resource record set has neither a TTL nor resource records"
	case isOwnZone && z.Records[recordKey(targetName, sdkshape.String(r.Type), "")] == nil:
		return prefix + "that target was not found"
	case !isOwnZone && s.cfg.AliasTargetExists != nil && !s.cfg.AliasTargetExists(targetZone, strings.TrimSuffix(targetName, ".")):
		return prefix + "the alias target name does not lie within the target zone"
	}

	return ""
}

// checkValues returns why the values of a record are invalid, or "" if they are valid.
func checkValues(r *sdk.ResourceRecordSet) string {
	if r.TTL == nil || len(r.ResourceRecords) == 0 {
		return fmt.Sprintf(
			"Expected exactly one of [AliasTarget, all of [TTL, and ResourceRecords], or TrafficPolicyInstanceId], "+
				"but found none in Change with [Action=CREATE, Name=%s, Type=%s]",
			*r.Name,
			sdkshape.String(r.Type),
		)
	}

	seen := map[string]bool{}
	for _, v := range r.ResourceRecords {
		text := sdkshape.String(v.Value)
		if seen[text] {
			return fmt.Sprintf("Duplicate Resource Record: '%s'", text)
		}

		if problem := checkValue(sdkshape.String(r.Type), text); problem != "" {
			return fmt.Sprintf(
				"Invalid Resource Record: 'FATAL problem: %s encountered with '%s''",
				problem,
				text,
			)
		}

		seen[text] = true
	}

	return ""
}

// checkValue returns why a value of a record is invalid, or "" if it is valid.
func checkValue(kind, text string) string {
	a, err := netip.ParseAddr(text)
	switch kind {
	case sdk.RRTypeA:
		if err != nil || !a.Is4() {
			return "ARRDATAIllegalIPv4Address (Value is not a valid IPv4 address)"
		}

	case sdk.RRTypeAaaa:
		if err != nil || !a.Is6() {
			return "AAAARRDATAIllegalIPv6Address (Value is not a valid IPv6 address)"
		}

	case sdk.RRTypeTxt:
		if !strings.HasPrefix(text, `"`) {
			return "InvalidCharacterString (Value should be enclosed in quotation marks)"
		}
	}

	return ""
}

// maxBatchRecords is how many resource records one batch may have. A record of an UPSERT counts twice.
const maxBatchRecords = 1000

// checkBatchSize refuses a batch with more records than Route 53 takes.
func checkBatchSize(changes []*sdk.Change) error {
	count := 0
	for _, c := range changes {
		records := len(c.ResourceRecordSet.ResourceRecords)
		if sdkshape.String(c.Action) == sdk.ChangeActionUpsert {
			records *= 2
		}

		count += records
	}

	if count <= maxBatchRecords {
		return nil
	}

	return newErrorf(
		codeInvalidChangeBatch,
		"[Number of records limit of %d exceeded.]",
		maxBatchRecords,
	)
}
