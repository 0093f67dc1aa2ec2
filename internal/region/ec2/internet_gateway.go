// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// internetGatewayHandlers serves internet gateways.
type internetGatewayHandlers struct{ *Service }

func (s internetGatewayHandlers) ops() []wire.Operation {
	return []wire.Operation{
		writeOperation(s.Service, "CreateInternetGateway", s.createInternetGateway),
		writeOperation(s.Service, "DeleteInternetGateway", s.deleteInternetGateway),
		readOperation(s.Service, "DescribeInternetGateways", s.describeInternetGateways),
		writeOperation(s.Service, "AttachInternetGateway", s.attachInternetGateway),
		writeOperation(s.Service, "DetachInternetGateway", s.detachInternetGateway),
	}
}

func (s internetGatewayHandlers) createInternetGateway(
	in *sdk.CreateInternetGatewayInput,
) (*sdk.CreateInternetGatewayOutput, error) {
	tags, err := parseTagSpecs(in.TagSpecifications, "internet-gateway")
	if err != nil {
		return nil, err
	}

	if len(s.st.Internet) >= s.cfg.Quotas.InternetGateways {
		return nil, newError(codeInternetGatewayLimitExceeded)
	}

	g := s.newInternetGateway()
	id := str(g.InternetGatewayId)
	s.st.setTags(id, tags)
	g.Tags = s.st.tagList(id)

	return &sdk.CreateInternetGatewayOutput{InternetGateway: g}, nil
}

// newInternetGateway adds an internet gateway to the state.
func (s internetGatewayHandlers) newInternetGateway() *sdk.InternetGateway {
	g := &sdk.InternetGateway{
		InternetGatewayId: new(s.newID("igw")),
		OwnerId:           new(s.cfg.Account),
		Attachments:       []*sdk.InternetGatewayAttachment{},
	}
	s.st.Internet[str(g.InternetGatewayId)] = g

	return g
}

func (st *serviceState) findInternetGateway(id *string) (*sdk.InternetGateway, error) {
	if str(id) == "" {
		return nil, missingParameter("internetGatewayId")
	}

	g := st.Internet[str(id)]
	if g == nil {
		return nil, newErrorf(
			codeInvalidInternetGatewayIDNotFound,
			"The internetGateway ID '%s' does not exist",
			str(id),
		)
	}

	return g, nil
}

func (s internetGatewayHandlers) deleteInternetGateway(
	in *sdk.DeleteInternetGatewayInput,
) (*sdk.DeleteInternetGatewayOutput, error) {
	g, err := s.st.findInternetGateway(in.InternetGatewayId)
	if err != nil {
		return nil, err
	}

	id := str(g.InternetGatewayId)
	if len(g.Attachments) > 0 {
		return nil, dependencyViolation(
			"The internetGateway '%s' has dependencies and cannot be deleted.",
			id,
		)
	}

	s.st.removeTags(id)
	delete(s.st.Internet, id)

	return &sdk.DeleteInternetGatewayOutput{}, nil
}

func internetGatewayFilterValues(g *sdk.InternetGateway, name string) ([]string, bool) {
	var vpc, state []string
	for _, a := range g.Attachments {
		vpc = append(vpc, str(a.VpcId))
		state = append(state, str(a.State))
	}

	switch name {
	case "internet-gateway-id":
		return []string{str(g.InternetGatewayId)}, true
	case "attachment.vpc-id":
		return vpc, true
	case "attachment.state":
		return state, true
	case "owner-id":
		return []string{str(g.OwnerId)}, true
	}

	return nil, false
}

func (s internetGatewayHandlers) describeInternetGateways(
	in *sdk.DescribeInternetGatewaysInput,
) (*sdk.DescribeInternetGatewaysOutput, error) {
	got, next, err := listResources(
		s.Service,
		s.st.Internet,
		describeQuery{in.InternetGatewayIds, in.Filters, in.MaxResults, in.NextToken},
		resourceLister[sdk.InternetGateway]{
			codeInvalidInternetGatewayIDNotFound,
			"internetGateway ID",
			internetGatewayFilterValues,
		},
	)

	for _, g := range got {
		g.Tags = s.st.tagList(str(g.InternetGatewayId))
	}

	return &sdk.DescribeInternetGatewaysOutput{InternetGateways: got, NextToken: next}, err
}

func (s internetGatewayHandlers) attachInternetGateway(
	in *sdk.AttachInternetGatewayInput,
) (*sdk.AttachInternetGatewayOutput, error) {
	g, err := s.st.findInternetGateway(in.InternetGatewayId)
	if err != nil {
		return nil, err
	}

	v, err := s.st.findVPC(in.VpcId)
	if err != nil {
		return nil, err
	}

	if len(g.Attachments) > 0 {
		return nil, newErrorf(
			codeResourceAlreadyAssociated,
			"resource %s is already attached to network %s",
			str(g.InternetGatewayId),
			str(g.Attachments[0].VpcId),
		)
	}

	if s.st.vpcInternetGateway(str(v.VpcId)) != nil {
		return nil, newErrorf(
			codeInvalidParameterValue,
			"Network %s already has an internet gateway attached",
			str(v.VpcId),
		)
	}

	// AWS returns the state "available" for an internet gateway, although its documentation says "attached".
	g.Attachments = []*sdk.InternetGatewayAttachment{{VpcId: v.VpcId, State: new("available")}}

	return &sdk.AttachInternetGatewayOutput{}, nil
}

func (st *serviceState) vpcInternetGateway(vpc string) *sdk.InternetGateway {
	for _, g := range st.Internet {
		if len(g.Attachments) > 0 && str(g.Attachments[0].VpcId) == vpc {
			return g
		}
	}

	return nil
}

func (s internetGatewayHandlers) detachInternetGateway(
	in *sdk.DetachInternetGatewayInput,
) (*sdk.DetachInternetGatewayOutput, error) {
	g, err := s.st.findInternetGateway(in.InternetGatewayId)
	if err != nil {
		return nil, err
	}

	vpc := str(in.VpcId)
	if vpc == "" {
		return nil, missingParameter("vpcId")
	}

	if len(g.Attachments) == 0 || str(g.Attachments[0].VpcId) != vpc {
		return nil, newErrorf(
			codeGatewayNotAttached,
			"resource %s is not attached to network %s",
			str(g.InternetGatewayId),
			vpc,
		)
	}

	for _, n := range s.st.Interfaces {
		if str(n.VpcId) == vpc && n.Association != nil {
			return nil, dependencyViolation(
				"Network %s has some mapped public address(es). Please unmap those before detaching the gateway.",
				vpc,
			)
		}
	}

	g.Attachments = []*sdk.InternetGatewayAttachment{}

	return &sdk.DetachInternetGatewayOutput{}, nil
}
