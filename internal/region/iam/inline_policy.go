// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"slices"

	"github.com/aws/aws-sdk-go/service/iam"

	"github.com/slipway-k8s/slipway/internal/region/authz"
)

// putInlinePolicy stores an inline policy. maxBytes is the limit of all inline policies of the identity
// together.
func (i *identity) putInlinePolicy(name, document string, maxBytes int) error {
	if err := validateName("policyName", name, maxPolicyNameLength); err != nil {
		return err
	}

	others := 0
	for other, text := range i.Inline {
		if other != name {
			others += documentSize(text)
		}
	}

	if err := validateDocument(authz.IdentityPolicy, document, maxBytes); err != nil {
		return err
	}

	if others+documentSize(document) > maxBytes {
		return newLimitError("Maximum policy size of %d bytes exceeded for %s", maxBytes, i.Name)
	}

	if i.Inline == nil {
		i.Inline = map[string]string{}
	}

	i.Inline[name] = document

	return nil
}

// findInlinePolicy returns the document of an inline policy.
func (i *identity) findInlinePolicy(name string) (string, error) {
	document, ok := i.Inline[name]
	if !ok {
		return "", newNotFoundError("The policy with name %s cannot be found on %s.", name, i.Name)
	}

	return document, nil
}

func (st *serviceState) attachPolicy(i *identity, arn string) error {
	p, err := st.findPolicy(arn)
	if err != nil {
		return err
	}

	if p.Path == serviceLinkedPath {
		return newErrorf(
			codePolicyNotAttachable,
			"Cannot attach a Service Role Policy to a Customer Role.",
		)
	}

	if slices.Contains(i.Attached, arn) {
		return nil
	}

	if len(i.Attached) >= maxAttachedPolicies {
		return newLimitError("Cannot exceed quota for PoliciesPerRole: %d", maxAttachedPolicies)
	}

	i.Attached = append(i.Attached, arn)
	slices.Sort(i.Attached)

	return nil
}

func (i *identity) detachPolicy(arn string) error {
	at := slices.Index(i.Attached, arn)
	if at < 0 {
		return newNotFoundError("Policy %s was not found.", arn)
	}

	i.Attached = slices.Delete(i.Attached, at, at+1)

	return nil
}

func (st *serviceState) attachedPolicies(arns []string) []*iam.AttachedPolicy {
	out := []*iam.AttachedPolicy{}
	for _, arn := range arns {
		if p, err := st.findPolicy(arn); err == nil {
			out = append(out, &iam.AttachedPolicy{PolicyArn: new(arn), PolicyName: new(p.Name)})
		}
	}

	return out
}

// inlinePolicyDetails describes the inline policies of some names.
func (i *identity) inlinePolicyDetails(names []string) []*iam.PolicyDetail {
	out := []*iam.PolicyDetail{}
	for _, name := range names {
		out = append(
			out,
			&iam.PolicyDetail{PolicyName: new(name), PolicyDocument: encodeDocument(i.Inline[name])},
		)
	}

	return out
}

func (s *IAM) putRolePolicy(in *iam.PutRolePolicyInput) (*iam.PutRolePolicyOutput, error) {
	r, err := s.st.findModifiableRole(*in.RoleName)
	if err != nil {
		return nil, err
	}

	return &iam.PutRolePolicyOutput{}, s.stale.trackInline(kindRole, &r.identity, *in.PolicyName, func() error {
		return r.putInlinePolicy(*in.PolicyName, *in.PolicyDocument, maxRoleInlineBytes)
	})
}

func (s *IAM) getRolePolicy(in *iam.GetRolePolicyInput) (*iam.GetRolePolicyOutput, error) {
	r, err := s.st.findRole(*in.RoleName)
	if err != nil {
		return nil, err
	}

	document, err := r.findInlinePolicy(*in.PolicyName)
	if err != nil {
		return nil, err
	}

	return &iam.GetRolePolicyOutput{
		RoleName:       in.RoleName,
		PolicyName:     in.PolicyName,
		PolicyDocument: encodeDocument(document),
	}, nil
}

func (s *IAM) listRolePolicies(in *iam.ListRolePoliciesInput) (*iam.ListRolePoliciesOutput, error) {
	r, err := s.st.findRole(*in.RoleName)
	if err != nil {
		return nil, err
	}

	w, err := paginateKeys(s.stale.visibleInline(kindRole, &r.identity), in.Marker, in.MaxItems)

	return &iam.ListRolePoliciesOutput{
		PolicyNames: stringPointers(w.keys),
		IsTruncated: w.isTruncated,
		Marker:      w.marker,
	}, err
}

func stringPointers(names []string) []*string {
	out := []*string{}
	for _, n := range names {
		out = append(out, new(n))
	}

	return out
}

func (s *IAM) deleteRolePolicy(in *iam.DeleteRolePolicyInput) (*iam.DeleteRolePolicyOutput, error) {
	r, err := s.st.findModifiableRole(*in.RoleName)
	if err != nil {
		return nil, err
	}

	if _, err := r.findInlinePolicy(*in.PolicyName); err != nil {
		return nil, err
	}

	delete(r.Inline, *in.PolicyName)

	return &iam.DeleteRolePolicyOutput{}, nil
}

func (s *IAM) attachRolePolicy(in *iam.AttachRolePolicyInput) (*iam.AttachRolePolicyOutput, error) {
	r, err := s.st.findModifiableRole(*in.RoleName)
	if err != nil {
		return nil, err
	}

	return &iam.AttachRolePolicyOutput{}, s.st.attachPolicy(&r.identity, *in.PolicyArn)
}

func (s *IAM) detachRolePolicy(in *iam.DetachRolePolicyInput) (*iam.DetachRolePolicyOutput, error) {
	r, err := s.st.findModifiableRole(*in.RoleName)
	if err != nil {
		return nil, err
	}

	return &iam.DetachRolePolicyOutput{}, r.detachPolicy(*in.PolicyArn)
}

func (s *IAM) listAttachedRolePolicies(
	in *iam.ListAttachedRolePoliciesInput,
) (*iam.ListAttachedRolePoliciesOutput, error) {
	r, err := s.st.findRole(*in.RoleName)
	if err != nil {
		return nil, err
	}

	w, err := paginateKeys(r.Attached, in.Marker, in.MaxItems)

	return &iam.ListAttachedRolePoliciesOutput{
		AttachedPolicies: s.st.attachedPolicies(w.keys),
		IsTruncated:      w.isTruncated,
		Marker:           w.marker,
	}, err
}

func (s *IAM) putUserPolicy(in *iam.PutUserPolicyInput) (*iam.PutUserPolicyOutput, error) {
	u, err := s.st.findUser(*in.UserName)
	if err != nil {
		return nil, err
	}

	return &iam.PutUserPolicyOutput{}, s.stale.trackInline(kindUser, &u.identity, *in.PolicyName, func() error {
		return u.putInlinePolicy(*in.PolicyName, *in.PolicyDocument, maxUserInlineBytes)
	})
}

func (s *IAM) getUserPolicy(in *iam.GetUserPolicyInput) (*iam.GetUserPolicyOutput, error) {
	u, err := s.st.findUser(*in.UserName)
	if err != nil {
		return nil, err
	}

	document, err := u.findInlinePolicy(*in.PolicyName)
	if err != nil {
		return nil, err
	}

	return &iam.GetUserPolicyOutput{
		UserName:       in.UserName,
		PolicyName:     in.PolicyName,
		PolicyDocument: encodeDocument(document),
	}, nil
}

func (s *IAM) listUserPolicies(in *iam.ListUserPoliciesInput) (*iam.ListUserPoliciesOutput, error) {
	u, err := s.st.findUser(*in.UserName)
	if err != nil {
		return nil, err
	}

	w, err := paginateKeys(s.stale.visibleInline(kindUser, &u.identity), in.Marker, in.MaxItems)

	return &iam.ListUserPoliciesOutput{
		PolicyNames: stringPointers(w.keys),
		IsTruncated: w.isTruncated,
		Marker:      w.marker,
	}, err
}

func (s *IAM) deleteUserPolicy(in *iam.DeleteUserPolicyInput) (*iam.DeleteUserPolicyOutput, error) {
	u, err := s.st.findUser(*in.UserName)
	if err != nil {
		return nil, err
	}

	if _, err := u.findInlinePolicy(*in.PolicyName); err != nil {
		return nil, err
	}

	delete(u.Inline, *in.PolicyName)

	return &iam.DeleteUserPolicyOutput{}, nil
}

func (s *IAM) attachUserPolicy(in *iam.AttachUserPolicyInput) (*iam.AttachUserPolicyOutput, error) {
	u, err := s.st.findUser(*in.UserName)
	if err != nil {
		return nil, err
	}

	return &iam.AttachUserPolicyOutput{}, s.st.attachPolicy(&u.identity, *in.PolicyArn)
}

func (s *IAM) detachUserPolicy(in *iam.DetachUserPolicyInput) (*iam.DetachUserPolicyOutput, error) {
	u, err := s.st.findUser(*in.UserName)
	if err != nil {
		return nil, err
	}

	return &iam.DetachUserPolicyOutput{}, u.detachPolicy(*in.PolicyArn)
}

func (s *IAM) listAttachedUserPolicies(
	in *iam.ListAttachedUserPoliciesInput,
) (*iam.ListAttachedUserPoliciesOutput, error) {
	u, err := s.st.findUser(*in.UserName)
	if err != nil {
		return nil, err
	}

	w, err := paginateKeys(u.Attached, in.Marker, in.MaxItems)

	return &iam.ListAttachedUserPoliciesOutput{
		AttachedPolicies: s.st.attachedPolicies(w.keys),
		IsTruncated:      w.isTruncated,
		Marker:           w.marker,
	}, err
}
