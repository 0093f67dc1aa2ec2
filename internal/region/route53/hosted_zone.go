// SPDX-License-Identifier: Apache-2.0

package route53

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/route53"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// normalizeName returns a name as Route 53 stores it: in lower case, with a dot at its end, and with
// asterisks escaped.
func normalizeName(name string) string {
	name = strings.ReplaceAll(strings.ToLower(name), "*", `\052`)
	if !strings.HasSuffix(name, ".") {
		name += "."
	}

	return name
}

// reverseLabels returns a name with its labels reversed. Such names sort in the order in which Route 53 lists
// them.
func reverseLabels(name string) string {
	labels := strings.Split(strings.TrimSuffix(name, "."), ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".") + "."
}

func isValidName(name string) bool {
	return len(name) <= 255 &&
		regexp.MustCompile(`^([a-z0-9_\\]([a-z0-9_\\-]{0,61}[a-z0-9_])?\.)+$`).MatchString(name)
}

func (s *Service) findHostedZone(id *string) (*hostedZone, error) {
	if z := s.st.Zones[trimIDPath(sdkshape.String(id))]; z != nil {
		return z, nil
	}

	return nil, newNotFoundError(trimIDPath(sdkshape.String(id)))
}

// newNotFoundError returns the error about a zone that does not exist. id has no path.
func newNotFoundError(id string) error {
	return newErrorf(codeNoSuchHostedZone, "No hosted zone found with ID: %s", id)
}

func (s *Service) createHostedZone(
	ctx context.Context,
	in *sdk.CreateHostedZoneInput,
) (*sdk.CreateHostedZoneOutput, error) {
	name := normalizeName(sdkshape.String(in.Name))
	if !isValidName(name) {
		return nil, newErrorf(
			codeInvalidDomainName,
			"%s is not a valid domain name",
			sdkshape.String(in.Name),
		)
	}

	for _, z := range s.st.Zones {
		if sdkshape.String(z.Shape.CallerReference) == sdkshape.String(in.CallerReference) {
			return nil, newError(codeHostedZoneAlreadyExists)
		}
	}

	config, err := newZoneConfig(in)
	if err != nil {
		return nil, err
	}

	id := "Z" + strings.ToUpper(sdkshape.RandomHex(s.cfg.Rand, 20))
	z := &hostedZone{
		Shape: &sdk.HostedZone{
			Id:              new("/hostedzone/" + id),
			Name:            &name,
			CallerReference: in.CallerReference,
			Config:          config,
		},
		Tags:    map[string]string{},
		Records: map[string]*sdk.ResourceRecordSet{},
	}
	if in.VPC != nil {
		if err := s.attachVPC(z, in.VPC); err != nil {
			return nil, err
		}
	}

	s.addDefaultRecords(z)
	s.st.Zones[id] = z
	s.unseen.Track(id)
	out := &sdk.CreateHostedZoneOutput{
		HostedZone: z.toHostedZone(),
		ChangeInfo: s.newChange(nil),
		VPC:        in.VPC,
		Location:   new("https://route53.amazonaws.com" + apiPathPrefix + "hostedzone/" + id),
	}
	if in.VPC == nil {
		out.DelegationSet = &sdk.DelegationSet{NameServers: z.Servers}
	}

	wire.SetResponseStatus(ctx, http.StatusCreated)

	return out, nil
}

// newZoneConfig returns the configuration of a new zone.
func newZoneConfig(in *sdk.CreateHostedZoneInput) (*sdk.HostedZoneConfig, error) {
	config := &sdk.HostedZoneConfig{PrivateZone: new(in.VPC != nil)}
	if in.HostedZoneConfig == nil {
		return config, nil
	}

	config.Comment = in.HostedZoneConfig.Comment
	if private := in.HostedZoneConfig.PrivateZone; private != nil && *private && in.VPC == nil {
		return nil, newErrorf(
			codeInvalidInput,
			"When you're creating a private hosted zone (when you specify true for PrivateZone), "+
				"you must also specify values for VPCId and VPCRegion.",
		)
	}

	return config, nil
}

// addDefaultRecords sets the name servers of a zone and its NS and SOA records.
func (s *Service) addDefaultRecords(z *hostedZone) {
	for i, tld := range []string{"org", "co.uk", "com", "net"} {
		n := len(s.st.Zones) % 64
		z.Servers = append(z.Servers, new(fmt.Sprintf("ns-%d.awsdns-%02d.%s", 512*i+n, n, tld)))
	}

	var servers []*sdk.ResourceRecord
	for _, n := range z.Servers {
		servers = append(servers, &sdk.ResourceRecord{Value: new(*n + ".")})
	}

	soa := *z.Servers[0] + ". awsdns-hostmaster.amazon.com. 1 7200 900 1209600 86400"
	z.putRecord(&sdk.ResourceRecordSet{
		Name:            z.Shape.Name,
		Type:            new(sdk.RRTypeNs),
		TTL:             new(int64(172800)),
		ResourceRecords: servers,
	})

	z.putRecord(&sdk.ResourceRecordSet{
		Name:            z.Shape.Name,
		Type:            new(sdk.RRTypeSoa),
		TTL:             new(int64(900)),
		ResourceRecords: []*sdk.ResourceRecord{{Value: &soa}},
	})
}

// toHostedZone describes a zone for a response.
func (z *hostedZone) toHostedZone() *sdk.HostedZone {
	out := *z.Shape
	out.ResourceRecordSetCount = new(int64(len(z.Records)))
	return &out
}

func (z *hostedZone) isPrivate() bool { return len(z.VPCs) > 0 }

func (s *Service) deleteHostedZone(in *sdk.DeleteHostedZoneInput) (*sdk.DeleteHostedZoneOutput, error) {
	z, err := s.findHostedZone(in.Id)
	if err != nil {
		return nil, err
	}

	for _, r := range z.Records {
		if !z.isRequiredRecord(r) {
			return nil, newError(codeHostedZoneNotEmpty)
		}
	}

	delete(s.st.Zones, trimIDPath(*z.Shape.Id))

	return &sdk.DeleteHostedZoneOutput{ChangeInfo: s.newChange(nil)}, nil
}

// isRequiredRecord reports whether a record is the NS or the SOA record of the zone, which every zone has.
func (z *hostedZone) isRequiredRecord(r *sdk.ResourceRecordSet) bool {
	return *r.Name == *z.Shape.Name && (*r.Type == sdk.RRTypeNs || *r.Type == sdk.RRTypeSoa)
}

func (s *Service) getHostedZone(in *sdk.GetHostedZoneInput) (*sdk.GetHostedZoneOutput, error) {
	z, err := s.findHostedZone(in.Id)
	if err != nil {
		return nil, err
	}

	out := &sdk.GetHostedZoneOutput{HostedZone: z.toHostedZone(), VPCs: z.VPCs}
	if !z.isPrivate() {
		out.DelegationSet = &sdk.DelegationSet{NameServers: z.Servers}
	}

	return out, nil
}

func (s *Service) getHostedZoneCount(*sdk.GetHostedZoneCountInput) (*sdk.GetHostedZoneCountOutput, error) {
	return &sdk.GetHostedZoneCountOutput{HostedZoneCount: new(int64(len(s.st.Zones)))}, nil
}

func (s *Service) updateHostedZoneComment(
	in *sdk.UpdateHostedZoneCommentInput,
) (*sdk.UpdateHostedZoneCommentOutput, error) {
	z, err := s.findHostedZone(in.Id)
	if err != nil {
		return nil, err
	}

	z.Shape.Config.Comment = in.Comment

	return &sdk.UpdateHostedZoneCommentOutput{HostedZone: z.toHostedZone()}, nil
}

// attachVPC associates a VPC with a zone.
func (s *Service) attachVPC(z *hostedZone, v *sdk.VPC) error {
	id := sdkshape.String(v.VPCId)
	if sdkshape.String(v.VPCRegion) != s.cfg.Region || s.cfg.VPCExists != nil && !s.cfg.VPCExists(id) {
		return newError(codeInvalidVPCID)
	}

	for _, other := range s.st.Zones {
		if *other.Shape.Name == *z.Shape.Name && other.hasVPC(id) {
			return newErrorf(
				codeConflictingDomainExists,
				"The VPC %s in region %s has already been associated with the hosted zone %s "+
					"with the same domain name.",
				id,
				s.cfg.Region,
				trimIDPath(*other.Shape.Id),
			)
		}
	}

	z.VPCs = append(z.VPCs, &sdk.VPC{VPCId: v.VPCId, VPCRegion: v.VPCRegion})

	return nil
}

func (z *hostedZone) hasVPC(vpc string) bool {
	return slices.ContainsFunc(z.VPCs, func(v *sdk.VPC) bool { return sdkshape.String(v.VPCId) == vpc })
}

func (s *Service) associateVPC(
	in *sdk.AssociateVPCWithHostedZoneInput,
) (*sdk.AssociateVPCWithHostedZoneOutput, error) {
	z, err := s.findHostedZone(in.HostedZoneId)
	if err != nil {
		return nil, err
	}

	if !z.isPrivate() {
		return nil, newError(codePublicZoneVPCAssociation)
	}

	if err := s.attachVPC(z, in.VPC); err != nil {
		return nil, err
	}

	return &sdk.AssociateVPCWithHostedZoneOutput{ChangeInfo: s.newChange(in.Comment)}, nil
}

func (s *Service) disassociateVPC(
	in *sdk.DisassociateVPCFromHostedZoneInput,
) (*sdk.DisassociateVPCFromHostedZoneOutput, error) {
	z, err := s.findHostedZone(in.HostedZoneId)
	if err != nil {
		return nil, err
	}

	id := sdkshape.String(in.VPC.VPCId)

	switch {
	case !z.hasVPC(id):
		return nil, newErrorf(
			codeVPCAssociationNotFound,
			"The VPC %s and hosted zone are not associated.",
			id,
		)

	case len(z.VPCs) == 1:
		return nil, newError(codeLastVPCAssociation)
	}

	z.VPCs = slices.DeleteFunc(z.VPCs, func(v *sdk.VPC) bool { return sdkshape.String(v.VPCId) == id })

	return &sdk.DisassociateVPCFromHostedZoneOutput{ChangeInfo: s.newChange(in.Comment)}, nil
}
