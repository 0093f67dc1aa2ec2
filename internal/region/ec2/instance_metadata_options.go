// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"slices"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

func (s instanceHandlers) modifyInstanceMetadataOptions(
	in *sdk.ModifyInstanceMetadataOptionsInput,
) (*sdk.ModifyInstanceMetadataOptionsOutput, error) {
	i, err := s.st.findInstance(in.InstanceId)
	if err != nil {
		return nil, err
	}

	if !isLive(i) {
		return nil, newErrorf(
			codeIncorrectInstanceState,
			"The instance '%s' is terminated",
			str(i.InstanceId),
		)
	}

	o := *i.MetadataOptions
	if err := applyMetadataOptions(&o, in); err != nil {
		return nil, err
	}

	i.MetadataOptions = &o

	return &sdk.ModifyInstanceMetadataOptionsOutput{
		InstanceId:              i.InstanceId,
		InstanceMetadataOptions: &o,
	}, nil
}

// resolveMetadataOptions sets the metadata options of a launch, with EC2's defaults.
func resolveMetadataOptions(l *launchRequest) error {
	o := &sdk.InstanceMetadataOptionsResponse{
		State:                   new("applied"),
		HttpTokens:              new("optional"),
		HttpEndpoint:            new("enabled"),
		HttpPutResponseHopLimit: new(int64(1)),
		HttpProtocolIpv6:        new("disabled"),
		InstanceMetadataTags:    new("disabled"),
	}

	l.metadataOptions = o
	in := l.in.MetadataOptions
	if in == nil {
		return nil
	}

	return applyMetadataOptions(o, &sdk.ModifyInstanceMetadataOptionsInput{
		HttpTokens:              in.HttpTokens,
		HttpEndpoint:            in.HttpEndpoint,
		HttpPutResponseHopLimit: in.HttpPutResponseHopLimit,
		HttpProtocolIpv6:        in.HttpProtocolIpv6,
		InstanceMetadataTags:    in.InstanceMetadataTags,
	})
}

// applyMetadataOptions changes the metadata options that a request sets.
func applyMetadataOptions(
	o *sdk.InstanceMetadataOptionsResponse,
	in *sdk.ModifyInstanceMetadataOptionsInput,
) error {
	for _, c := range []struct {
		name    string
		to      **string
		from    *string
		allowed []string
	}{
		{"HttpTokens", &o.HttpTokens, in.HttpTokens, []string{"optional", "required"}},
		{"HttpEndpoint", &o.HttpEndpoint, in.HttpEndpoint, []string{"enabled", "disabled"}},
		{"HttpProtocolIpv6", &o.HttpProtocolIpv6, in.HttpProtocolIpv6, []string{"enabled", "disabled"}},
		{"InstanceMetadataTags", &o.InstanceMetadataTags, in.InstanceMetadataTags, []string{"enabled", "disabled"}},
	} {
		if c.from == nil {
			continue
		}

		if !slices.Contains(c.allowed, *c.from) {
			return invalidParameter(c.name, *c.from, "")
		}

		*c.to = c.from
	}

	if h := in.HttpPutResponseHopLimit; h != nil {
		if *h < 1 || *h > 64 {
			return invalidParameter("HttpPutResponseHopLimit", itoa(int(*h)), "It must be between 1 and 64")
		}

		o.HttpPutResponseHopLimit = h
	}

	return nil
}
