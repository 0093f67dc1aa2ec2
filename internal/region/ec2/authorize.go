// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// createdKinds returns the resource types that an operation creates. IAM is asked about them as well.
func createdKinds() map[string][]string {
	return map[string][]string{
		"CreateVpc":                  {"vpc"},
		"CreateDhcpOptions":          {"dhcp-options"},
		"CreateSubnet":               {"subnet"},
		"CreateInternetGateway":      {"internet-gateway"},
		"AllocateAddress":            {"elastic-ip"},
		"CreateNatGateway":           {"natgateway"},
		"CreateRouteTable":           {"route-table"},
		"CreateSecurityGroup":        {"security-group"},
		"CreateVolume":               {"volume"},
		"CreateLaunchTemplate":       {"launch-template"},
		"ImportKeyPair":              {"key-pair"},
		"CreateVpcPeeringConnection": {"vpc-peering-connection"},
		"CreateVpcEndpoint":          {"vpc-endpoint"},
		"CreateSnapshot":             {"snapshot"},
		"CopyImage":                  {"image"},
		"CreateNetworkInterface":     {"network-interface"},
		"RunInstances":               {"instance", "volume", "network-interface"},
	}
}

// authorizeRequest asks IAM about every resource that a request names. Describe operations are checked
// against the resource "*", as in AWS, but for the attributes of an instance.
func (s *Service) authorizeRequest(ctx context.Context, op string, in any) error {
	if wire.CallerFrom(ctx).IsUnrestricted() {
		return nil
	}

	action := "ec2:" + op
	if strings.HasPrefix(op, "Describe") && op != "DescribeInstanceAttribute" {
		return wire.Authorize(ctx, wire.AccessCheck{Action: action, Resource: "*"})
	}

	checks, err := s.changeChecks(op, in)
	if err != nil {
		return err
	}

	return wire.Authorize(ctx, checks...)
}

// changeChecks returns what IAM is asked for a request that changes something.
func (s *Service) changeChecks(op string, in any) ([]wire.AccessCheck, error) {
	tree, err := sdkshape.ShapeToMap(in)
	if err != nil {
		return nil, err
	}

	switch launch := in.(type) {
	case *sdk.CreateFleetInput:
		return s.fleetChecks(launch, tree), nil
	case *sdk.RunInstancesInput:
		return s.runChecks(launch, tree)
	}

	return s.requestChecks(op, tree), nil
}

// requestChecks returns what IAM is asked for a request that launches nothing.
func (s *Service) requestChecks(op string, tree map[string]any) []wire.AccessCheck {
	s.store.Lock()
	defer s.store.Unlock()
	action := "ec2:" + op
	request := map[string][]string{}
	if op == "CreateTags" || op == "DeleteTags" {
		sdkshape.AddRequestTags(request, tree["Tags"])
	}

	byKind := tagSpecificationContexts(tree)
	var out []wire.AccessCheck

	for _, kind := range createdKinds()[op] {
		c := byKind[kind]
		if op == "CreateVolume" {
			c = volumeContext(c, tree)
		}

		out = append(out, wire.AccessCheck{Action: action, Resource: s.cfg.wildcardARN(kind), Context: c})
	}

	addCheck := func(id, arn string) {
		c := maps.Clone(request)
		sdkshape.AddResourceTags(c, s.st.Tags[id])
		out = append(out, wire.AccessCheck{Action: action, Resource: arn, Context: c})
	}

	for _, id := range s.st.requestResources(op, tree) {
		addCheck(id, s.cfg.resourceARN(id))
	}

	if asksForPrivateDNS(op, tree) {
		out = append(out, wire.AccessCheck{
			Action:   "route53:AssociateVPCWithHostedZone",
			Resource: "arn:aws:route53:::hostedzone/*",
			Context:  request,
		})
	}

	name, _ := tree["KeyName"].(string)
	if id := s.st.findKeyPairID(name); id != "" {
		addCheck(id, s.cfg.keyPairARN(name))
	}

	for _, kind := range sortedKeys(byKind) {
		c := maps.Clone(byKind[kind])
		c["ec2:CreateAction"] = []string{op}
		out = append(out, wire.AccessCheck{Action: "ec2:CreateTags", Resource: s.cfg.wildcardARN(kind), Context: c})
	}

	if len(out) == 0 {
		out = append(out, wire.AccessCheck{Action: action, Resource: "*", Context: request})
	}

	return out
}

// volumeContext returns the condition keys of the volume that CreateVolume asks for, besides those of its tags.
func volumeContext(tags map[string][]string, tree map[string]any) map[string][]string {
	into := map[string][]string{}
	maps.Copy(into, tags)
	encrypted, _ := tree["Encrypted"].(bool)
	into["ec2:Encrypted"] = []string{strconv.FormatBool(encrypted)}

	for key, field := range map[string]string{
		"ec2:AvailabilityZone": "AvailabilityZone",
		"ec2:KmsKeyId":         "KmsKeyId",
		"ec2:ParentSnapshot":   "SnapshotId",
		"ec2:VolumeIops":       "Iops",
		"ec2:VolumeSize":       "Size",
		"ec2:VolumeThroughput": "Throughput",
		"ec2:VolumeType":       "VolumeType",
	} {
		if value, set := tree[field]; set {
			into[key] = []string{fmt.Sprint(value)}
		}
	}

	return into
}

// asksForPrivateDNS reports whether a request gives private DNS names to an interface endpoint, which is the default for a
// new one. AWS then asks for a right of Route 53 too; see docs/aws-facts.md.
func asksForPrivateDNS(op string, tree map[string]any) bool {
	enabled, isSet := tree["PrivateDnsEnabled"].(bool)

	switch op {
	case "CreateVpcEndpoint":
		return tree["VpcEndpointType"] == "Interface" && (enabled || !isSet)
	case "ModifyVpcEndpoint":
		return enabled
	}

	return false
}

// tagSpecificationContexts returns the condition keys of the tags that a request puts on new resources, by
// resource type.
func tagSpecificationContexts(tree map[string]any) map[string]map[string][]string {
	out := map[string]map[string][]string{}
	specs, _ := tree["TagSpecifications"].([]any)
	for _, spec := range specs {
		m, _ := spec.(map[string]any)
		kind, _ := m["ResourceType"].(string)
		out[kind] = map[string][]string{}
		sdkshape.AddRequestTags(out[kind], m["Tags"])
	}

	return out
}

// requestResources returns the ids of the existing resources that IAM is asked about for a request. It leaves
// out the peers of rules and VPCs, tags, and the resources that a launch template names.
func (st *serviceState) requestResources(op string, tree map[string]any) []string {
	named := sdkshape.CollectStrings(
		tree,
		isResourceID,
		"PeerVpcId",
		"IpPermissions",
		"SecurityGroupRule",
		"TagSpecifications",
		"Tags",
		"Filters",
		"ClientToken",
		"UserData",
		"LaunchTemplateData",
	)

	if op == "CreateRoute" || op == "ReplaceRoute" { // not about the target of the route
		named = slices.DeleteFunc(named, func(id string) bool { return resourceKind(id) != "route-table" })
	}

	return slices.Concat(
		named,
		st.associationResources(tree),
		st.peeringAccepterVPC(op, tree),
		interfaceAttachmentResources(st, tree),
	)
}

// interfaceAttachmentResources returns the network interface and the instance of the attachment that a request names, without what the
// request names itself. An attachment has no ARN of its own.
func interfaceAttachmentResources(st *serviceState, tree map[string]any) []string {
	name, _ := tree["AttachmentId"].(string)
	if changes, ok := tree["Attachment"].(map[string]any); ok {
		name, _ = changes["AttachmentId"].(string)
	}

	n := st.findAttachment(name)
	if n == nil {
		return nil
	}

	if tree["NetworkInterfaceId"] != nil {
		return []string{str(n.Attachment.InstanceId)}
	}

	return []string{str(n.Attachment.InstanceId), str(n.NetworkInterfaceId)}
}

// peeringAccepterVPC returns the accepter's VPC if the request accepts a peering connection: IAM is asked
// about it as well.
func (st *serviceState) peeringAccepterVPC(op string, tree map[string]any) []string {
	id, _ := tree["VpcPeeringConnectionId"].(string)
	if p := st.Peerings[id]; p != nil && op == "AcceptVpcPeeringConnection" {
		return []string{str(p.AccepterVpcInfo.VpcId)}
	}

	return nil
}

// associationResources returns the route table and the subnet of the association that a request names. An
// association has no ARN of its own.
func (st *serviceState) associationResources(tree map[string]any) []string {
	name, _ := tree["AssociationId"].(string)
	if !strings.HasPrefix(name, "rtbassoc-") {
		return nil
	}

	for _, id := range sortedKeys(st.Tables) {
		for _, a := range st.Tables[id].Associations {
			if str(a.RouteTableAssociationId) == name {
				return []string{id, str(a.SubnetId)}
			}
		}
	}

	return nil
}

// isResourceID reports whether text is the id of a resource type that IAM knows.
func isResourceID(text string) bool {
	return resourceKind(text) != "" && regexp.MustCompile(`^[a-z]+-[0-9a-f]{8,17}$`).MatchString(text)
}
