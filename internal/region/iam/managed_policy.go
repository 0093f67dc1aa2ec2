// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go/service/iam"

	"github.com/slipway-k8s/slipway/internal/region/authz"
)

// managedPolicy is a policy managed by the customer or by AWS. Tags is replaced on each change, never
// modified.
type managedPolicy struct {
	Name        string            `json:"name"`
	ID          string            `json:"id"` // unique ID, such as ANPA…
	Path        string            `json:"path"`
	ARN         string            `json:"arn"`
	Description string            `json:"description,omitempty"`
	Created     time.Time         `json:"created"`
	Updated     time.Time         `json:"updated"` // when the default version last changed
	Tags        map[string]string `json:"tags,omitempty"`
	Versions    []policyVersion   `json:"versions"` // oldest first
	Default     string            `json:"default"`  // id of the default version, such as v1
	Last        int               `json:"last"`     // highest version number so far, also of deleted versions
}

type policyVersion struct {
	ID       string    `json:"id"` // such as v1
	Document string    `json:"document"`
	Created  time.Time `json:"created"`
}

// defaultDocument returns the document of the default version.
func (p *managedPolicy) defaultDocument() string {
	for _, v := range p.Versions {
		if v.ID == p.Default {
			return v.Document
		}
	}

	return ""
}

func (p *managedPolicy) findVersion(id string) (policyVersion, error) {
	for _, v := range p.Versions {
		if v.ID == id {
			return v, nil
		}
	}

	return policyVersion{}, newNotFoundError(
		"Policy %s version %s does not exist or is not attachable.",
		p.ARN,
		id,
	)
}

func (st *serviceState) findPolicy(arn string) (*managedPolicy, error) {
	if p, ok := awsManagedPolicies()[arn]; ok {
		return p, nil
	}

	if !strings.HasPrefix(arn, "arn:") {
		return nil, newValidationError("Invalid ARN:  Could not be parsed!")
	}

	p, ok := st.Policies[arn]
	if !ok {
		return nil, newNotFoundError("Policy %s does not exist or is not attachable.", arn)
	}

	return p, nil
}

// countAttachments returns the number of roles and users that a policy is attached to.
func (st *serviceState) countAttachments(arn string) int64 {
	var n int64
	for _, r := range st.Roles {
		if slices.Contains(r.Attached, arn) {
			n++
		}
	}

	for _, u := range st.Users {
		if slices.Contains(u.Attached, arn) {
			n++
		}
	}

	return n
}

// toPolicy describes a policy as lists do: without its description and its tags.
func (p *managedPolicy) toPolicy(s *IAM) *iam.Policy {
	out := &iam.Policy{
		Arn:                           new(p.ARN),
		PolicyName:                    new(p.Name),
		PolicyId:                      new(p.ID),
		Path:                          new(p.Path),
		DefaultVersionId:              new(p.Default),
		AttachmentCount:               new(s.st.countAttachments(p.ARN)),
		IsAttachable:                  new(true),
		PermissionsBoundaryUsageCount: new(s.st.countBoundaries(p.ARN)),
		CreateDate:                    new(p.Created),
		UpdateDate:                    new(p.Updated),
	}

	return out
}

// toPolicyVersion describes a version without its document.
func (v policyVersion) toPolicyVersion(p *managedPolicy) *iam.PolicyVersion {
	return &iam.PolicyVersion{
		VersionId:        new(v.ID),
		CreateDate:       new(v.Created),
		IsDefaultVersion: new(v.ID == p.Default),
	}
}

// toFullPolicyVersion describes a version with its document.
func (v policyVersion) toFullPolicyVersion(p *managedPolicy) *iam.PolicyVersion {
	out := v.toPolicyVersion(p)
	out.Document = encodeDocument(v.Document)

	return out
}

func (s *IAM) createPolicy(in *iam.CreatePolicyInput) (*iam.CreatePolicyOutput, error) {
	now := s.cfg.Now().UTC()
	p := &managedPolicy{
		Name:        *in.PolicyName,
		Description: stringValue(in.Description),
		Created:     now,
		Updated:     now,
		Default:     "v1",
		Last:        1,
		Versions:    []policyVersion{{ID: "v1", Document: *in.PolicyDocument, Created: now}},
	}
	if err := validateName("policyName", p.Name, maxPolicyNameLength); err != nil {
		return nil, err
	}

	var err error
	if p.Path, err = resolvePath(in.Path); err != nil {
		return nil, err
	}

	if err := validateDocument(authz.IdentityPolicy, *in.PolicyDocument, maxManagedPolicyBytes); err != nil {
		return nil, err
	}

	if p.Tags, err = mergeTags(nil, in.Tags); err != nil {
		return nil, err
	}

	for _, other := range s.st.Policies {
		if strings.EqualFold(other.Name, p.Name) {
			return nil, newExistsError(
				"A policy called %s already exists. Duplicate names are not allowed.",
				p.Name,
			)
		}
	}

	if p.ID, err = newUniqueID(s.cfg.Rand, "ANPA", 21); err != nil {
		return nil, err
	}

	p.ARN = s.entityARN("policy", p.Path, p.Name)
	s.st.Policies[p.ARN] = p
	s.stale.track(kindPolicy, p.ARN)
	out := p.toPolicy(s)
	if len(p.Tags) > 0 {
		out.Tags = tagList(p.Tags)
	}

	return &iam.CreatePolicyOutput{Policy: out}, nil
}

func (s *IAM) getPolicy(in *iam.GetPolicyInput) (*iam.GetPolicyOutput, error) {
	p, err := s.st.findPolicy(*in.PolicyArn)
	if err != nil {
		return nil, err
	}

	out := p.toPolicy(s)
	out.Tags = append([]*iam.Tag{}, tagList(p.Tags)...) // also empty, but there
	if p.Description != "" {
		out.Description = new(p.Description)
	}

	return &iam.GetPolicyOutput{Policy: out}, nil
}

// selectPolicies returns the sorted ARNs of the policies that a list has.
func selectPolicies(st *serviceState, in *iam.ListPoliciesInput) []string {
	var all []*managedPolicy
	if stringValue(in.Scope) != "AWS" {
		all = slices.AppendSeq(all, maps.Values(st.Policies))
	}

	if stringValue(in.Scope) != "Local" {
		all = slices.AppendSeq(all, maps.Values(awsManagedPolicies()))
	}

	var keys []string

	onlyAttached := in.OnlyAttached != nil && *in.OnlyAttached

	for _, p := range all {
		wanted := !onlyAttached || st.countAttachments(p.ARN) > 0
		if wanted && strings.HasPrefix(p.Path, stringValue(in.PathPrefix)) {
			keys = append(keys, p.ARN)
		}
	}

	slices.Sort(keys)

	return keys
}

func (s *IAM) listPolicies(in *iam.ListPoliciesInput) (*iam.ListPoliciesOutput, error) {
	keys := s.stale.visible(kindPolicy, selectPolicies(&s.st, in))
	w, err := paginateKeys(keys, in.Marker, in.MaxItems)
	if err != nil {
		return nil, err
	}

	out := &iam.ListPoliciesOutput{IsTruncated: w.isTruncated, Marker: w.marker}

	for _, arn := range w.keys {
		p, err := s.st.findPolicy(arn)
		if err != nil {
			return nil, err
		}

		out.Policies = append(out.Policies, p.toPolicy(s))
	}

	return out, nil
}

func (s *IAM) deletePolicy(in *iam.DeletePolicyInput) (*iam.DeletePolicyOutput, error) {
	p, err := s.st.findLocalPolicy(*in.PolicyArn)
	switch {
	case err != nil:
		return nil, err
	case s.st.countAttachments(p.ARN)+s.st.countBoundaries(p.ARN) > 0:
		return nil, newErrorf(codeDeleteConflict, "Cannot delete a policy attached to entities.")
	case len(p.Versions) > 1:
		return nil, newErrorf(
			codeDeleteConflict,
			"This policy has more than one version. Before you delete a policy, you must delete the policy's "+
				"versions. The default version is deleted with the policy.",
		)
	}

	delete(s.st.Policies, p.ARN)

	return &iam.DeletePolicyOutput{}, nil
}

// findLocalPolicy returns a policy managed by the customer, which may be changed.
func (st *serviceState) findLocalPolicy(arn string) (*managedPolicy, error) {
	p, ok := st.Policies[arn]
	if !ok {
		return nil, newNotFoundError("Policy %s was not found.", arn)
	}

	return p, nil
}

func (s *IAM) createPolicyVersion(in *iam.CreatePolicyVersionInput) (*iam.CreatePolicyVersionOutput, error) {
	p, err := s.st.findLocalPolicy(*in.PolicyArn)
	if err != nil {
		return nil, err
	}

	if err := validateDocument(authz.IdentityPolicy, *in.PolicyDocument, maxManagedPolicyBytes); err != nil {
		return nil, err
	}

	if len(p.Versions) >= maxPolicyVersions {
		return nil, newLimitError(
			"A managed policy can have up to %d versions. "+
				"Before you create a new version, you must delete an existing version.",
			maxPolicyVersions,
		)
	}

	p.Last++
	v := policyVersion{
		ID:       fmt.Sprintf("v%d", p.Last),
		Document: *in.PolicyDocument,
		Created:  s.cfg.Now().UTC(),
	}
	p.Versions = append(p.Versions, v)
	if in.SetAsDefault != nil && *in.SetAsDefault {
		p.Default = v.ID
		p.Updated = v.Created
	}

	return &iam.CreatePolicyVersionOutput{PolicyVersion: v.toPolicyVersion(p)}, nil
}

func (s *IAM) getPolicyVersion(in *iam.GetPolicyVersionInput) (*iam.GetPolicyVersionOutput, error) {
	p, err := s.st.findPolicy(*in.PolicyArn)
	if err != nil {
		return nil, err
	}

	v, err := p.findVersion(*in.VersionId)
	if err != nil {
		return nil, err
	}

	if p.Path == serviceLinkedPath {
		return nil, newDocumentMissingError(p.Name)
	}

	return &iam.GetPolicyVersionOutput{PolicyVersion: v.toFullPolicyVersion(p)}, nil
}

// newDocumentMissingError returns the error about the document of a policy of service-linked roles: no caller of the
// region has such a role, so it does not need their documents.
func newDocumentMissingError(name string) error {
	return newErrorf(
		codeNotImplemented,
		"This region does not have the document of the policy %s",
		name,
	)
}

func (s *IAM) listPolicyVersions(in *iam.ListPolicyVersionsInput) (*iam.ListPolicyVersionsOutput, error) {
	p, err := s.st.findPolicy(*in.PolicyArn)
	if err != nil {
		return nil, err
	}

	page, err := paginateIndexes(len(p.Versions), in.Marker, in.MaxItems)
	if err != nil {
		return nil, err
	}

	out := &iam.ListPolicyVersionsOutput{IsTruncated: page.isTruncated, Marker: page.marker}

	for _, i := range page.indexes { // newest first
		out.Versions = append(out.Versions, p.Versions[len(p.Versions)-1-i].toPolicyVersion(p))
	}

	return out, nil
}

func (s *IAM) setDefaultPolicyVersion(
	in *iam.SetDefaultPolicyVersionInput,
) (*iam.SetDefaultPolicyVersionOutput, error) {
	p, err := s.st.findLocalPolicy(*in.PolicyArn)
	if err != nil {
		return nil, err
	}

	if _, err := p.findVersion(*in.VersionId); err != nil {
		return nil, err
	}

	p.Default = *in.VersionId
	p.Updated = s.cfg.Now().UTC()

	return &iam.SetDefaultPolicyVersionOutput{}, nil
}

func (s *IAM) deletePolicyVersion(in *iam.DeletePolicyVersionInput) (*iam.DeletePolicyVersionOutput, error) {
	p, err := s.st.findLocalPolicy(*in.PolicyArn)
	if err != nil {
		return nil, err
	}

	if _, err := p.findVersion(*in.VersionId); err != nil {
		return nil, err
	}

	if p.Default == *in.VersionId {
		return nil, newErrorf(codeDeleteConflict, "Cannot delete the default version of a policy.")
	}

	p.Versions = slices.DeleteFunc(p.Versions, func(v policyVersion) bool { return v.ID == *in.VersionId })

	return &iam.DeletePolicyVersionOutput{}, nil
}

// toPolicyDetail describes a policy for GetAccountAuthorizationDetails, newest version first.
func (p *managedPolicy) toPolicyDetail(s *IAM) *iam.ManagedPolicyDetail {
	out := &iam.ManagedPolicyDetail{
		Arn:              new(p.ARN),
		PolicyName:       new(p.Name),
		PolicyId:         new(p.ID),
		Path:             new(p.Path),
		DefaultVersionId: new(p.Default),
		AttachmentCount:  new(s.st.countAttachments(p.ARN)),
		IsAttachable:     new(true),
		CreateDate:       new(p.Created),
		UpdateDate:       new(p.Updated),
	}

	for _, v := range p.Versions {
		out.PolicyVersionList = append(out.PolicyVersionList, v.toFullPolicyVersion(p))
	}

	slices.SortFunc(
		out.PolicyVersionList,
		func(a, b *iam.PolicyVersion) int { return versionNumber(*b.VersionId) - versionNumber(*a.VersionId) },
	)

	return out
}

func versionNumber(versionID string) int {
	n, err := strconv.Atoi(strings.TrimPrefix(versionID, "v"))
	if err != nil {
		return 0
	}

	return n
}
