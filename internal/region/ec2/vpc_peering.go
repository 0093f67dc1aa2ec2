// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"net/netip"
	"slices"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// vpcPeeringHandlers serves VPC peering connections.
type vpcPeeringHandlers struct{ *Service }

func (s vpcPeeringHandlers) ops() []wire.Operation {
	return []wire.Operation{
		writeOperation(s.Service, "CreateVpcPeeringConnection", s.createVPCPeeringConnection),
		writeOperation(s.Service, "AcceptVpcPeeringConnection", s.acceptVPCPeeringConnection),
		writeOperation(s.Service, "DeleteVpcPeeringConnection", s.deleteVPCPeeringConnection),
		readOperation(s.Service, "DescribeVpcPeeringConnections", s.describeVPCPeeringConnections),
	}
}

// The states of a peering connection. Source:
// https://docs.aws.amazon.com/vpc/latest/peering/vpc-peering-basics.html#vpc-peering-lifecycle
const (
	peeringInitiating   = sdk.VpcPeeringConnectionStateReasonCodeInitiatingRequest
	peeringFailed       = sdk.VpcPeeringConnectionStateReasonCodeFailed
	peeringPending      = sdk.VpcPeeringConnectionStateReasonCodePendingAcceptance
	peeringProvisioning = sdk.VpcPeeringConnectionStateReasonCodeProvisioning
	peeringActive       = sdk.VpcPeeringConnectionStateReasonCodeActive
	peeringDeleted      = sdk.VpcPeeringConnectionStateReasonCodeDeleted
)

func (cfg *Config) peeringVPCInfo(v *sdk.Vpc) *sdk.VpcPeeringConnectionVpcInfo {
	out := &sdk.VpcPeeringConnectionVpcInfo{
		VpcId:     v.VpcId,
		CidrBlock: v.CidrBlock,
		OwnerId:   new(cfg.Account),
		Region:    new(cfg.Region),
	}

	for _, c := range vpcCIDRs(v) {
		out.CidrBlockSet = append(out.CidrBlockSet, &sdk.CidrBlock{CidrBlock: new(c.String())})
	}

	return out
}

func newPeeringStatus(code, message string) *sdk.VpcPeeringConnectionStateReason {
	return &sdk.VpcPeeringConnectionStateReason{Code: new(code), Message: new(message)}
}

func (s vpcPeeringHandlers) createVPCPeeringConnection(
	in *sdk.CreateVpcPeeringConnectionInput,
) (*sdk.CreateVpcPeeringConnectionOutput, error) {
	tags, err := parseTagSpecs(in.TagSpecifications, "vpc-peering-connection")
	if err != nil {
		return nil, err
	}

	ours, err := s.st.findVPC(in.VpcId)
	if err != nil {
		return nil, err
	}

	theirs, err := s.st.findVPC(in.PeerVpcId)
	if err != nil {
		return nil, err
	}

	if ours == theirs {
		return nil, newErrorf(codeInvalidParameterValue, "A VPC cannot be peered with itself")
	}

	for _, p := range s.st.Peerings {
		pair := []string{str(p.RequesterVpcInfo.VpcId), str(p.AccepterVpcInfo.VpcId)}
		if str(p.Status.Code) != peeringDeleted && slices.Contains(pair, str(in.VpcId)) &&
			slices.Contains(pair, str(in.PeerVpcId)) {
			return nil, newErrorf(
				codeVPCPeeringConnectionAlreadyExists,
				"The two VPCs are peered by %s",
				str(p.VpcPeeringConnectionId),
			)
		}
	}

	id := s.newID("pcx")
	p := &sdk.VpcPeeringConnection{
		VpcPeeringConnectionId: new(id),
		RequesterVpcInfo:       s.cfg.peeringVPCInfo(ours),
		AccepterVpcInfo:        s.cfg.peeringVPCInfo(theirs),
		Status:                 newPeeringStatus(peeringInitiating, "Initiating Request to "+s.cfg.Account),
	}
	s.st.Peerings[id] = p
	s.st.setTags(id, tags)
	s.scheduleTransition(transitionPeeringProcessed, id)
	p.Tags = s.st.tagList(id)

	return &sdk.CreateVpcPeeringConnectionOutput{VpcPeeringConnection: p}, nil
}

// applyPeeringTransition ends the processing of a request, or of its acceptance.
func (s vpcPeeringHandlers) applyPeeringTransition(t transition) {
	p := s.st.Peerings[t.ID]
	if p == nil {
		return
	}

	code := str(p.Status.Code)
	switch {
	case t.Kind == transitionPeeringActive && code == peeringProvisioning:
		p.Status = newPeeringStatus(peeringActive, "Active")
	case t.Kind == transitionPeeringProcessed && code == peeringInitiating:
		p.Status = newPeeringStatus(peeringPending, "Pending Acceptance by "+s.cfg.Account)
		if peeringCIDRsOverlap(p) {
			p.Status = newPeeringStatus(
				peeringFailed,
				"Failed due to incorrect VPC-ID, Account ID, or overlapping CIDR range",
			)
		}
	}
}

func peeringCIDRsOverlap(p *sdk.VpcPeeringConnection) bool {
	for _, ours := range p.RequesterVpcInfo.CidrBlockSet {
		prefix := netip.MustParsePrefix(str(ours.CidrBlock))
		if slices.ContainsFunc(p.AccepterVpcInfo.CidrBlockSet, func(theirs *sdk.CidrBlock) bool {
			return prefix.Overlaps(netip.MustParsePrefix(str(theirs.CidrBlock)))
		}) {
			return true
		}
	}

	return false
}

func (st *serviceState) findVPCPeering(id *string) (*sdk.VpcPeeringConnection, error) {
	if p := st.Peerings[str(id)]; p != nil {
		return p, nil
	}

	return nil, newErrorf(
		codeInvalidVPCPeeringConnectionIDNotFound,
		"The vpcPeeringConnection ID '%s' does not exist",
		str(id),
	)
}

func (s vpcPeeringHandlers) acceptVPCPeeringConnection(
	in *sdk.AcceptVpcPeeringConnectionInput,
) (*sdk.AcceptVpcPeeringConnectionOutput, error) {
	p, err := s.st.findVPCPeering(in.VpcPeeringConnectionId)
	if err != nil {
		return nil, err
	}

	if code := str(p.Status.Code); code != peeringPending {
		return nil, newErrorf(
			codeInvalidStateTransition,
			"%s is %s and cannot be accepted",
			str(p.VpcPeeringConnectionId),
			code,
		)
	}

	p.Status = newPeeringStatus(peeringProvisioning, "Provisioning")
	s.scheduleTransition(transitionPeeringActive, str(p.VpcPeeringConnectionId))

	return &sdk.AcceptVpcPeeringConnectionOutput{VpcPeeringConnection: p}, nil
}

// deleteVPCPeeringConnection deletes a peering connection; routes to it become blackholes. It stays visible,
// as it does in AWS for some hours.
func (s vpcPeeringHandlers) deleteVPCPeeringConnection(
	in *sdk.DeleteVpcPeeringConnectionInput,
) (*sdk.DeleteVpcPeeringConnectionOutput, error) {
	p, err := s.st.findVPCPeering(in.VpcPeeringConnectionId)
	if err != nil {
		return nil, err
	}

	if code := str(p.Status.Code); code != peeringPending && code != peeringActive {
		return nil, newErrorf(
			codeInvalidStateTransition,
			"%s is %s and cannot be deleted",
			str(p.VpcPeeringConnectionId),
			code,
		)
	}

	p.Status = newPeeringStatus(peeringDeleted, "Deleted by "+s.cfg.Account)
	s.st.blackholeRoutes(str(p.VpcPeeringConnectionId))

	return &sdk.DeleteVpcPeeringConnectionOutput{Return: new(true)}, nil
}

func (s vpcPeeringHandlers) describeVPCPeeringConnections(
	in *sdk.DescribeVpcPeeringConnectionsInput,
) (*sdk.DescribeVpcPeeringConnectionsOutput, error) {
	field := func(p *sdk.VpcPeeringConnection, name string) ([]string, bool) {
		var requester, accepter, status *string
		if p.Status != nil {
			requester = p.RequesterVpcInfo.VpcId
			accepter = p.AccepterVpcInfo.VpcId
			status = p.Status.Code
		}

		v, known := map[string]*string{
			"vpc-peering-connection-id": p.VpcPeeringConnectionId,
			"status-code":               status,
			"requester-vpc-info.vpc-id": requester,
			"accepter-vpc-info.vpc-id":  accepter,
		}[name]

		return []string{str(v)}, known
	}

	got, next, err := listResources(
		s.Service,
		s.st.Peerings,
		describeQuery{in.VpcPeeringConnectionIds, in.Filters, in.MaxResults, in.NextToken},
		resourceLister[sdk.VpcPeeringConnection]{
			codeInvalidVPCPeeringConnectionIDNotFound,
			"vpcPeeringConnection ID",
			field,
		},
	)

	for _, p := range got {
		p.Tags = s.st.tagList(str(p.VpcPeeringConnectionId))
	}

	return &sdk.DescribeVpcPeeringConnectionsOutput{VpcPeeringConnections: got, NextToken: next}, err
}
