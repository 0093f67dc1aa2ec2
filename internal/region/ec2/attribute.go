// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"encoding/base64"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/wire"
)

func (s *Service) describeInstanceAttribute(in *sdk.DescribeInstanceAttributeInput) (*sdk.DescribeInstanceAttributeOutput, error) {
	i, err := s.instance(in.InstanceId)
	if err != nil {
		return nil, err
	}
	s.showInstance(i)
	x, out := s.st.Extra[str(i.InstanceId)], &sdk.DescribeInstanceAttributeOutput{InstanceId: i.InstanceId}
	flag := func(b bool) *sdk.AttributeBooleanValue { return &sdk.AttributeBooleanValue{Value: new(b)} }
	switch str(in.Attribute) {
	case sdk.InstanceAttributeNameUserData:
		out.UserData = &sdk.AttributeValue{}
		if x.UserData != "" {
			out.UserData.Value = new(x.UserData)
		}
	case sdk.InstanceAttributeNameInstanceType:
		out.InstanceType = &sdk.AttributeValue{Value: i.InstanceType}
	case sdk.InstanceAttributeNameDisableApiTermination:
		out.DisableApiTermination = flag(x.NoTermination)
	case sdk.InstanceAttributeNameDisableApiStop:
		out.DisableApiStop = flag(x.NoStop)
	case sdk.InstanceAttributeNameInstanceInitiatedShutdownBehavior:
		out.InstanceInitiatedShutdownBehavior = &sdk.AttributeValue{Value: new(x.Shutdown)}
	case sdk.InstanceAttributeNameRootDeviceName:
		out.RootDeviceName = &sdk.AttributeValue{Value: i.RootDeviceName}
	case sdk.InstanceAttributeNameBlockDeviceMapping:
		out.BlockDeviceMappings = i.BlockDeviceMappings
	case sdk.InstanceAttributeNameSourceDestCheck:
		out.SourceDestCheck = &sdk.AttributeBooleanValue{Value: i.SourceDestCheck}
	case sdk.InstanceAttributeNameGroupSet:
		out.Groups = i.SecurityGroups
	case sdk.InstanceAttributeNameEbsOptimized:
		out.EbsOptimized = &sdk.AttributeBooleanValue{Value: i.EbsOptimized}
	case sdk.InstanceAttributeNameEnaSupport:
		out.EnaSupport = flag(true)
	default:
		return nil, invalid("attribute", str(in.Attribute), "")
	}
	return out, nil
}

func (s *Service) modifyInstanceAttribute(in *sdk.ModifyInstanceAttributeInput) (*sdk.ModifyInstanceAttributeOutput, error) {
	i, err := s.instance(in.InstanceId)
	if err != nil {
		return nil, err
	}
	id := str(i.InstanceId)
	x, n := s.st.Extra[id], s.st.Interfaces[s.primary(id)]
	if n == nil {
		return nil, wire.Errorf("IncorrectInstanceState", "The instance '%s' is terminated", id)
	}
	stopped := str(i.State.Name) == sdk.InstanceStateNameStopped
	switch {
	case len(in.Groups) > 0:
		groups, err := s.groupsOf(str(n.VpcId), strs(in.Groups))
		if err != nil {
			return nil, err
		}
		n.Groups = groups
	case in.SourceDestCheck != nil:
		n.SourceDestCheck = in.SourceDestCheck.Value
	case in.DisableApiTermination != nil:
		x.NoTermination = isTrue(in.DisableApiTermination.Value)
	case in.DisableApiStop != nil:
		x.NoStop = isTrue(in.DisableApiStop.Value)
	case in.InstanceInitiatedShutdownBehavior != nil:
		x.Shutdown = str(in.InstanceInitiatedShutdownBehavior.Value)
	case in.EbsOptimized != nil:
		i.EbsOptimized = in.EbsOptimized.Value
	case (in.InstanceType != nil || in.UserData != nil) && !stopped:
		return nil, wire.Errorf("IncorrectInstanceState", "The instance '%s' is not in the 'stopped' state.", id)
	case in.InstanceType != nil:
		if _, ok := s.types[str(in.InstanceType.Value)]; !ok {
			return nil, wire.Errorf("InvalidInstanceAttributeValue", "Invalid value '%s' for InstanceType.", str(in.InstanceType.Value))
		}
		i.InstanceType = in.InstanceType.Value
	case in.UserData != nil:
		data := base64.StdEncoding.EncodeToString(in.UserData.Value)
		if err := checkUserData(&data); err != nil {
			return nil, err
		}
		x.UserData = data
	default:
		return nil, missing("an attribute")
	}
	return &sdk.ModifyInstanceAttributeOutput{}, nil
}

func (s *Service) modifyMetadataOptions(in *sdk.ModifyInstanceMetadataOptionsInput) (*sdk.ModifyInstanceMetadataOptionsOutput, error) {
	i, err := s.instance(in.InstanceId)
	if err != nil {
		return nil, err
	}
	if !live(i) {
		return nil, wire.Errorf("IncorrectInstanceState", "The instance '%s' is terminated", str(i.InstanceId))
	}
	o := *i.MetadataOptions
	if err := setOptions(&o, in); err != nil {
		return nil, err
	}
	i.MetadataOptions = &o
	return &sdk.ModifyInstanceMetadataOptionsOutput{InstanceId: i.InstanceId, InstanceMetadataOptions: &o}, nil
}
