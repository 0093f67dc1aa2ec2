// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"encoding/base64"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

func (s instanceHandlers) describeInstanceAttribute(
	in *sdk.DescribeInstanceAttributeInput,
) (*sdk.DescribeInstanceAttributeOutput, error) {
	i, err := s.st.findInstance(in.InstanceId)
	if err != nil {
		return nil, err
	}

	s.st.refreshInstance(i)
	x := s.st.Extra[str(i.InstanceId)]
	out := &sdk.DescribeInstanceAttributeOutput{InstanceId: i.InstanceId}
	show := instanceAttributeSetters(i, x, out)[str(in.Attribute)]
	if show == nil {
		return nil, invalidParameter("attribute", str(in.Attribute), "")
	}

	show()

	return out, nil
}

// instanceAttributeSetters returns the function that sets an attribute in out, by the attribute's name.
func instanceAttributeSetters(
	i *sdk.Instance,
	x *instanceExtra,
	out *sdk.DescribeInstanceAttributeOutput,
) map[string]func() {
	flag := func(b bool) *sdk.AttributeBooleanValue { return &sdk.AttributeBooleanValue{Value: new(b)} }
	text := func(v *string) *sdk.AttributeValue { return &sdk.AttributeValue{Value: v} }

	return map[string]func(){
		sdk.InstanceAttributeNameUserData: func() {
			out.UserData = text(nil)
			if x.UserData != "" {
				out.UserData.Value = new(x.UserData)
			}
		},
		sdk.InstanceAttributeNameInstanceType: func() {
			out.InstanceType = text(i.InstanceType)
		},
		sdk.InstanceAttributeNameDisableApiTermination: func() {
			out.DisableApiTermination = flag(x.NoTermination)
		},
		sdk.InstanceAttributeNameDisableApiStop: func() {
			out.DisableApiStop = flag(x.NoStop)
		},
		sdk.InstanceAttributeNameInstanceInitiatedShutdownBehavior: func() {
			out.InstanceInitiatedShutdownBehavior = text(new(x.Shutdown))
		},
		sdk.InstanceAttributeNameRootDeviceName: func() {
			out.RootDeviceName = text(i.RootDeviceName)
		},
		sdk.InstanceAttributeNameBlockDeviceMapping: func() {
			out.BlockDeviceMappings = i.BlockDeviceMappings
		},
		sdk.InstanceAttributeNameSourceDestCheck: func() {
			out.SourceDestCheck = flag(isTrue(i.SourceDestCheck))
		},
		sdk.InstanceAttributeNameGroupSet: func() {
			out.Groups = i.SecurityGroups
		},
		sdk.InstanceAttributeNameEbsOptimized: func() {
			out.EbsOptimized = flag(isTrue(i.EbsOptimized))
		},
		sdk.InstanceAttributeNameEnaSupport: func() {
			out.EnaSupport = flag(true)
		},
	}
}

func (s instanceHandlers) modifyInstanceAttribute(
	in *sdk.ModifyInstanceAttributeInput,
) (*sdk.ModifyInstanceAttributeOutput, error) {
	i, err := s.st.findInstance(in.InstanceId)
	if err != nil {
		return nil, err
	}

	id := str(i.InstanceId)
	x := s.st.Extra[id]
	n := s.st.Interfaces[s.st.primaryInterfaceID(id)]
	if n == nil {
		return nil, newErrorf(codeIncorrectInstanceState, "The instance '%s' is terminated", id)
	}

	switch {
	case len(in.Groups) > 0, in.SourceDestCheck != nil:
		if err := checkSingleInterface(s.st, id); err != nil {
			return nil, err
		}

		return &sdk.ModifyInstanceAttributeOutput{}, s.modifyOnlyInterface(n, in)

	case in.DisableApiTermination != nil:
		x.NoTermination = isTrue(in.DisableApiTermination.Value)
	case in.DisableApiStop != nil:
		x.NoStop = isTrue(in.DisableApiStop.Value)
	case in.InstanceInitiatedShutdownBehavior != nil:
		x.Shutdown = str(in.InstanceInitiatedShutdownBehavior.Value)
	case in.EbsOptimized != nil:
		i.EbsOptimized = in.EbsOptimized.Value
	default:
		return &sdk.ModifyInstanceAttributeOutput{}, s.modifyStoppedInstance(i, x, in)
	}

	return &sdk.ModifyInstanceAttributeOutput{}, nil
}

// modifyOnlyInterface changes the attributes of an instance's only network interface.
func (s instanceHandlers) modifyOnlyInterface(n *sdk.NetworkInterface, in *sdk.ModifyInstanceAttributeInput) error {
	if len(in.Groups) == 0 {
		n.SourceDestCheck = in.SourceDestCheck.Value
		return nil
	}

	groups, err := s.st.resolveSecurityGroups(str(n.VpcId), strs(in.Groups), s.cfg.Quotas.GroupsPerENI)
	if err != nil {
		return err
	}

	n.Groups = groups

	return nil
}

// modifyStoppedInstance changes the attributes that only a stopped instance allows to change.
func (s instanceHandlers) modifyStoppedInstance(
	i *sdk.Instance,
	x *instanceExtra,
	in *sdk.ModifyInstanceAttributeInput,
) error {
	switch {
	case in.InstanceType == nil && in.UserData == nil:
		return missingParameter("an attribute")
	case str(i.State.Name) != sdk.InstanceStateNameStopped:
		return newErrorf(
			codeIncorrectInstanceState,
			"The instance '%s' is not in the 'stopped' state.",
			str(i.InstanceId),
		)

	case in.InstanceType != nil:
		if _, ok := s.instanceTypes[str(in.InstanceType.Value)]; !ok {
			return newErrorf(
				codeInvalidInstanceAttributeValue,
				"Invalid value '%s' for InstanceType.",
				str(in.InstanceType.Value),
			)
		}

		i.InstanceType = in.InstanceType.Value

	default:
		data := base64.StdEncoding.EncodeToString(in.UserData.Value)
		if err := checkUserData(&data); err != nil {
			return err
		}

		x.UserData = data
	}

	return nil
}
