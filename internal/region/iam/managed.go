// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go/service/iam"

	"github.com/slipway-k8s/slipway/internal/region/authz"
)

// policy is a managed policy.
type policy struct {
	Name        string            `json:"name"`
	ID          string            `json:"id"`
	Path        string            `json:"path"`
	ARN         string            `json:"arn"`
	Description string            `json:"description,omitempty"`
	Created     time.Time         `json:"created"`
	Updated     time.Time         `json:"updated"`
	Tags        map[string]string `json:"tags,omitempty"`
	Versions    []version         `json:"versions"` // oldest first
	Default     string            `json:"default"`  // such as v1
	Last        int               `json:"last"`     // number of the newest version ever
}

type version struct {
	ID       string    `json:"id"`
	Document string    `json:"document"`
	Created  time.Time `json:"created"`
}

// document is the policy's default version.
func (p *policy) document() string {
	for _, v := range p.Versions {
		if v.ID == p.Default {
			return v.Document
		}
	}

	return ""
}

func (p *policy) version(id string) (version, error) {
	for _, v := range p.Versions {
		if v.ID == id {
			return v, nil
		}
	}

	return version{}, missing("Policy %s version %s does not exist or is not attachable.", p.ARN, id)
}

func (s *IAM) policy(arn string) (*policy, error) {
	if p, ok := ofAWS()[arn]; ok {
		return p, nil
	}

	p, ok := s.st.Policies[arn]
	if !ok {
		return nil, missing("Policy %s does not exist or is not attachable.", arn)
	}

	return p, nil
}

// attachments counts whom a policy is attached to.
func (s *IAM) attachments(arn string) int64 {
	var n int64
	for _, r := range s.st.Roles {
		if slices.Contains(r.Attached, arn) {
			n++
		}
	}

	for _, u := range s.st.Users {
		if slices.Contains(u.Attached, arn) {
			n++
		}
	}

	return n
}

func (p *policy) shape(s *IAM) *iam.Policy {
	out := &iam.Policy{
		Arn:                           new(p.ARN),
		PolicyName:                    new(p.Name),
		PolicyId:                      new(p.ID),
		Path:                          new(p.Path),
		DefaultVersionId:              new(p.Default),
		AttachmentCount:               new(s.attachments(p.ARN)),
		IsAttachable:                  new(true),
		PermissionsBoundaryUsageCount: new(int64(0)),
		CreateDate:                    new(p.Created),
		UpdateDate:                    new(p.Updated),
	}
	if p.Description != "" {
		out.Description = new(p.Description)
	}

	return out
}

func (v version) shape(p *policy, withDocument bool) *iam.PolicyVersion { //revive:disable-line:flag-parameter
	out := &iam.PolicyVersion{
		VersionId:        new(v.ID),
		CreateDate:       new(v.Created),
		IsDefaultVersion: new(v.ID == p.Default),
	}
	if withDocument {
		out.Document = encoded(v.Document)
	}

	return out
}

func (s *IAM) createPolicy(in *iam.CreatePolicyInput) (*iam.CreatePolicyOutput, error) {
	now := s.cfg.Now().UTC()
	p := &policy{
		Name:        *in.PolicyName,
		Description: str(in.Description),
		Created:     now,
		Updated:     now,
		Default:     "v1",
		Last:        1,
		Versions:    []version{{ID: "v1", Document: *in.PolicyDocument, Created: now}},
	}
	if err := checkName("policyName", p.Name, maxPolicyName); err != nil {
		return nil, err
	}

	var err error
	if p.Path, err = checkPath(in.Path); err != nil {
		return nil, err
	}

	if err := checkDocument(authz.Identity, *in.PolicyDocument, maxManaged); err != nil {
		return nil, err
	}

	if p.Tags, err = merge(nil, in.Tags); err != nil {
		return nil, err
	}

	for _, other := range s.st.Policies {
		if strings.EqualFold(other.Name, p.Name) {
			return nil, exists("A policy called %s already exists. Duplicate names are not allowed.", p.Name)
		}
	}

	if p.ID, err = s.id("ANPA", 21); err != nil {
		return nil, err
	}

	p.ARN = s.arn("policy", p.Path, p.Name)
	s.st.Policies[p.ARN] = p
	out := p.shape(s)
	out.Tags = tagList(p.Tags)

	return &iam.CreatePolicyOutput{Policy: out}, nil
}

func (s *IAM) getPolicy(in *iam.GetPolicyInput) (*iam.GetPolicyOutput, error) {
	p, err := s.policy(*in.PolicyArn)
	if err != nil {
		return nil, err
	}

	out := p.shape(s)
	out.Tags = tagList(p.Tags)

	return &iam.GetPolicyOutput{Policy: out}, nil
}

func (s *IAM) listPolicies(in *iam.ListPoliciesInput) (*iam.ListPoliciesOutput, error) {
	keys := slices.DeleteFunc(sorted(s.st.Policies), func(arn string) bool {
		return !strings.HasPrefix(s.st.Policies[arn].Path, str(in.PathPrefix)) ||
			in.OnlyAttached != nil && *in.OnlyAttached && s.attachments(arn) == 0
	})

	switch str(in.Scope) {
	case "AWS":
		keys = sorted(ofAWS())
	case "Local":
	default:
		keys = append(keys, sorted(ofAWS())...)
		slices.Sort(keys)
	}

	w, err := page(keys, in.Marker, in.MaxItems)
	if err != nil {
		return nil, err
	}

	out := &iam.ListPoliciesOutput{IsTruncated: w.more, Marker: w.marker}

	for _, arn := range w.keys {
		p, err := s.policy(arn)
		if err != nil {
			return nil, err
		}

		out.Policies = append(out.Policies, p.shape(s))
	}

	return out, nil
}

func (s *IAM) deletePolicy(in *iam.DeletePolicyInput) (*iam.DeletePolicyOutput, error) {
	p, err := s.local(*in.PolicyArn)
	switch {
	case err != nil:
		return nil, err
	case s.attachments(p.ARN) > 0:
		return nil, conflict("detach the policy from all entities")
	case len(p.Versions) > 1:
		return nil, conflict("delete all versions but the default one")
	}

	delete(s.st.Policies, p.ARN)

	return &iam.DeletePolicyOutput{}, nil
}

// local finds a policy that may be changed.
func (s *IAM) local(arn string) (*policy, error) {
	p, ok := s.st.Policies[arn]
	if !ok {
		return nil, missing("Policy %s was not found.", arn)
	}

	return p, nil
}

func (s *IAM) createPolicyVersion(in *iam.CreatePolicyVersionInput) (*iam.CreatePolicyVersionOutput, error) {
	p, err := s.local(*in.PolicyArn)
	if err != nil {
		return nil, err
	}

	if err := checkDocument(authz.Identity, *in.PolicyDocument, maxManaged); err != nil {
		return nil, err
	}

	if len(p.Versions) >= maxVersions {
		return nil, limit(
			"A managed policy can have up to %d versions. Before you create a new version, you must delete an existing version.",
			maxVersions,
		)
	}

	p.Last++
	v := version{ID: fmt.Sprintf("v%d", p.Last), Document: *in.PolicyDocument, Created: s.cfg.Now().UTC()}
	p.Versions = append(p.Versions, v)
	if in.SetAsDefault != nil && *in.SetAsDefault {
		p.Default = v.ID
		p.Updated = v.Created
	}

	return &iam.CreatePolicyVersionOutput{PolicyVersion: v.shape(p, false)}, nil
}

func (s *IAM) getPolicyVersion(in *iam.GetPolicyVersionInput) (*iam.GetPolicyVersionOutput, error) {
	p, err := s.policy(*in.PolicyArn)
	if err != nil {
		return nil, err
	}

	v, err := p.version(*in.VersionId)
	if err != nil {
		return nil, err
	}

	return &iam.GetPolicyVersionOutput{PolicyVersion: v.shape(p, true)}, nil
}

func (s *IAM) listPolicyVersions(in *iam.ListPolicyVersionsInput) (*iam.ListPolicyVersionsOutput, error) {
	p, err := s.policy(*in.PolicyArn)
	if err != nil {
		return nil, err
	}

	out := &iam.ListPolicyVersionsOutput{IsTruncated: new(false)} // there are never more than five
	for _, v := range slices.Backward(p.Versions) {
		out.Versions = append(out.Versions, v.shape(p, false))
	}

	return out, nil
}

func (s *IAM) setDefaultPolicyVersion(
	in *iam.SetDefaultPolicyVersionInput,
) (*iam.SetDefaultPolicyVersionOutput, error) {
	p, err := s.local(*in.PolicyArn)
	if err != nil {
		return nil, err
	}

	if _, err := p.version(*in.VersionId); err != nil {
		return nil, err
	}

	p.Default, p.Updated = *in.VersionId, s.cfg.Now().UTC()

	return &iam.SetDefaultPolicyVersionOutput{}, nil
}

func (s *IAM) deletePolicyVersion(in *iam.DeletePolicyVersionInput) (*iam.DeletePolicyVersionOutput, error) {
	p, err := s.local(*in.PolicyArn)
	if err != nil {
		return nil, err
	}

	if _, err := p.version(*in.VersionId); err != nil {
		return nil, err
	}

	if p.Default == *in.VersionId {
		return nil, conflict("make another version the default one")
	}

	p.Versions = slices.DeleteFunc(p.Versions, func(v version) bool { return v.ID == *in.VersionId })

	return &iam.DeletePolicyVersionOutput{}, nil
}

// detail is a policy as GetAccountAuthorizationDetails shows it.
func (p *policy) detail(s *IAM) *iam.ManagedPolicyDetail {
	out := &iam.ManagedPolicyDetail{
		Arn:              new(p.ARN),
		PolicyName:       new(p.Name),
		PolicyId:         new(p.ID),
		Path:             new(p.Path),
		DefaultVersionId: new(p.Default),
		AttachmentCount:  new(s.attachments(p.ARN)),
		IsAttachable:     new(true),
		CreateDate:       new(p.Created),
		UpdateDate:       new(p.Updated),
	}

	for _, v := range p.Versions {
		out.PolicyVersionList = append(out.PolicyVersionList, v.shape(p, true))
	}

	slices.SortFunc(
		out.PolicyVersionList,
		func(a, b *iam.PolicyVersion) int { return number(*b.VersionId) - number(*a.VersionId) },
	)

	return out
}

func number(versionID string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(versionID, "v"))
	if err != nil {
		return 0
	}

	return n
}
