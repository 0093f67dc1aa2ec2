// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"maps"

	"github.com/aws/aws-sdk-go/service/iam"

	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// policyTagHandlers are the operations on the tags of policies. AWS's own policies cannot have tags.
type policyTagHandlers struct{ *IAM }

func policyTagOps(i *IAM) []wire.Operation {
	s := policyTagHandlers{i}

	return []wire.Operation{
		state.WriteOperation(s.store, "TagPolicy", s.tagPolicy),
		state.WriteOperation(s.store, "UntagPolicy", s.untagPolicy),
		state.ReadOperation(s.store, "ListPolicyTags", s.listPolicyTags),
	}
}

func (s policyTagHandlers) tagPolicy(in *iam.TagPolicyInput) (*iam.TagPolicyOutput, error) {
	p, err := s.st.findLocalPolicy(*in.PolicyArn)
	if err != nil {
		return nil, err
	}

	tags, err := mergeTags(p.Tags, in.Tags)
	if err != nil {
		return nil, err
	}

	p.Tags = tags

	return &iam.TagPolicyOutput{}, nil
}

func (s policyTagHandlers) untagPolicy(in *iam.UntagPolicyInput) (*iam.UntagPolicyOutput, error) {
	p, err := s.st.findLocalPolicy(*in.PolicyArn)
	if err != nil {
		return nil, err
	}

	p.Tags = removeTags(p.Tags, in.TagKeys)

	return &iam.UntagPolicyOutput{}, nil
}

func (s policyTagHandlers) listPolicyTags(in *iam.ListPolicyTagsInput) (*iam.ListPolicyTagsOutput, error) {
	p, err := s.st.findLocalPolicy(*in.PolicyArn)
	if err != nil {
		return nil, err
	}

	page, err := paginateKeys(sortedKeys(p.Tags), in.Marker, in.MaxItems)
	if err != nil {
		return nil, err
	}

	out := &iam.ListPolicyTagsOutput{
		IsTruncated: page.isTruncated,
		Marker:      page.marker,
		Tags:        []*iam.Tag{},
	}
	for _, k := range page.keys {
		out.Tags = append(out.Tags, &iam.Tag{Key: new(k), Value: new(p.Tags[k])})
	}

	return out, nil
}

// ResourceTags returns the tags of instance profiles, policies and OpenID Connect providers, by ARN. The Resource Groups
// Tagging API does not know users and roles.
func ResourceTags(s *IAM) map[string]map[string]string {
	out := map[string]map[string]string{}
	s.store.View(func() {
		for _, p := range s.st.Profiles {
			out[p.profileARN(s)] = maps.Clone(p.Tags)
		}

		for arn, p := range s.st.Policies {
			out[arn] = maps.Clone(p.Tags)
		}

		for _, p := range s.st.OIDCProviders {
			out[p.providerARN(s)] = maps.Clone(p.Tags)
		}
	})

	return out
}
