// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/sdkshape"
)

// structFromFields converts a tree of fields into an SDK shape and drops the fields that the shape lacks. AWS
// names the fields of a launch template's data, of its answer and of RunInstances alike, so that one can be
// converted into the other.
func structFromFields[T any](tree map[string]any) (*T, error) {
	b, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("convert fields into a %T: %w", *new(T), err)
	}

	out := new(T)
	if err := json.Unmarshal(b, out); err != nil {
		return nil, fmt.Errorf("convert fields into a %T: %w", *out, err)
	}

	return out, nil
}

// maxUserData is EC2's limit for user data in bytes, before base64.
const maxUserData = 16 << 10

func checkUserData(data *string) error {
	if data == nil {
		return nil
	}

	raw, err := base64.StdEncoding.DecodeString(*data)
	if err != nil {
		return newError(codeInvalidUserDataMalformed)
	}

	if len(raw) > maxUserData {
		return newErrorf(codeInvalidParameterValue, "User data is limited to 16384 bytes")
	}

	return nil
}

// checkTemplateRequest refuses data that EC2 refuses, and enclaves, which the region does not have.
func (s launchTemplateHandlers) checkTemplateRequest(in *sdk.RequestLaunchTemplateData) error {
	if in == nil {
		return missingParameter("LaunchTemplateData")
	}

	if err := checkUserData(in.UserData); err != nil {
		return err
	}

	if o := in.EnclaveOptions; o != nil && isTrue(o.Enabled) {
		return notImplemented("LaunchTemplateData.EnclaveOptions.Enabled")
	}

	if t := str(in.InstanceType); t != "" {
		if err := s.checkInstanceType(t); err != nil {
			return err
		}
	}

	for _, spec := range in.TagSpecifications {
		if !slices.Contains(
			[]string{"instance", "volume", "network-interface", "spot-instances-request", "elastic-gpu"},
			str(spec.ResourceType),
		) {
			return newErrorf(
				codeInvalidParameterValue,
				"'%s' is not a valid taggable resource type.",
				str(spec.ResourceType),
			)
		}

		if err := checkTags(spec.Tags); err != nil {
			return err
		}
	}

	return nil
}

// resolveTemplateData checks the data of a launch template, merges it over base (nil for none) and returns it
// in the form of answers.
func (s launchTemplateHandlers) resolveTemplateData(
	in *sdk.RequestLaunchTemplateData,
	base *sdk.ResponseLaunchTemplateData,
) (*sdk.ResponseLaunchTemplateData, error) {
	if err := s.checkTemplateRequest(in); err != nil {
		return nil, err
	}

	tree, err := sdkshape.ShapeToMap(in)
	if err != nil {
		return nil, err
	}

	if base != nil {
		all, err := sdkshape.ShapeToMap(base)
		if err != nil {
			return nil, err
		}

		maps.Copy(all, tree)
		tree = all
	}

	out, err := structFromFields[sdk.ResponseLaunchTemplateData](tree)
	if err != nil {
		return nil, err
	}

	return out, cmp.Or(checkTemplateHostname(out.PrivateDnsNameOptions), checkTemplateMetadata(out.MetadataOptions))
}

func checkTemplateHostname(o *sdk.LaunchTemplatePrivateDnsNameOptions) error {
	if o == nil {
		return nil
	}

	return checkHostnameType("privateDnsNameOptions.hostnameType", o.HostnameType)
}

func checkTemplateMetadata(o *sdk.LaunchTemplateInstanceMetadataOptions) error {
	if o == nil {
		return nil
	}

	if o.HttpPutResponseHopLimit != nil &&
		(*o.HttpPutResponseHopLimit < 1 || *o.HttpPutResponseHopLimit > 64) {
		return newErrorf(
			codeInvalidParameterValue,
			"Value (%d) for parameter HttpPutResponseHopLimit is invalid.",
			*o.HttpPutResponseHopLimit,
		)
	}

	o.State = nil

	return nil
}
