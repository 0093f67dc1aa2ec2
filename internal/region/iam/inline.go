// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"slices"

	"github.com/aws/aws-sdk-go/service/iam"

	"github.com/slipway-k8s/slipway/internal/region/authz"
)

// put stores an inline policy. longest is the limit of all inline policies of the identity together.
func (i *identity) put(name, document string, longest int) error {
	if err := checkName("policyName", name, maxPolicyName); err != nil {
		return err
	}

	others := 0
	for other, text := range i.Inline {
		if other != name {
			others += size(text)
		}
	}

	if err := checkDocument(authz.Identity, document, longest); err != nil {
		return err
	}

	if others+size(document) > longest {
		return limit("Maximum policy size of %d bytes exceeded for %s", longest, i.Name)
	}

	if i.Inline == nil {
		i.Inline = map[string]string{}
	}

	i.Inline[name] = document

	return nil
}

// inline finds an inline policy.
func (i *identity) inline(name string) (string, error) {
	document, ok := i.Inline[name]
	if !ok {
		return "", missing("The policy with name %s cannot be found on %s.", name, i.Name)
	}

	return document, nil
}

func (s *IAM) attach(i *identity, arn string) error {
	if _, err := s.policy(arn); err != nil {
		return err
	}

	if slices.Contains(i.Attached, arn) {
		return nil
	}

	if len(i.Attached) >= maxAttached {
		return limit("Cannot exceed quota for PoliciesPerRole: %d", maxAttached)
	}

	i.Attached = append(i.Attached, arn)
	slices.Sort(i.Attached)

	return nil
}

func (i *identity) detach(arn string) error {
	at := slices.Index(i.Attached, arn)
	if at < 0 {
		return missing("Policy %s was not found.", arn)
	}

	i.Attached = slices.Delete(i.Attached, at, at+1)

	return nil
}

func (s *IAM) attachedShapes(arns []string) []*iam.AttachedPolicy {
	out := []*iam.AttachedPolicy{}
	for _, arn := range arns {
		if p, err := s.policy(arn); err == nil {
			out = append(out, &iam.AttachedPolicy{PolicyArn: new(arn), PolicyName: new(p.Name)})
		}
	}

	return out
}

func (i *identity) inlineShapes() []*iam.PolicyDetail {
	out := []*iam.PolicyDetail{}
	for _, name := range sorted(i.Inline) {
		out = append(out, &iam.PolicyDetail{PolicyName: new(name), PolicyDocument: encoded(i.Inline[name])})
	}

	return out
}

func (s *IAM) putRolePolicy(in *iam.PutRolePolicyInput) (*iam.PutRolePolicyOutput, error) {
	r, err := s.role(*in.RoleName)
	if err != nil {
		return nil, err
	}

	return &iam.PutRolePolicyOutput{}, r.put(*in.PolicyName, *in.PolicyDocument, maxInlineRole)
}

func (s *IAM) getRolePolicy(in *iam.GetRolePolicyInput) (*iam.GetRolePolicyOutput, error) {
	r, err := s.role(*in.RoleName)
	if err != nil {
		return nil, err
	}

	document, err := r.inline(*in.PolicyName)
	if err != nil {
		return nil, err
	}

	return &iam.GetRolePolicyOutput{
		RoleName:       in.RoleName,
		PolicyName:     in.PolicyName,
		PolicyDocument: encoded(document),
	}, nil
}

func (s *IAM) listRolePolicies(in *iam.ListRolePoliciesInput) (*iam.ListRolePoliciesOutput, error) {
	r, err := s.role(*in.RoleName)
	if err != nil {
		return nil, err
	}

	w, err := page(sorted(r.Inline), in.Marker, in.MaxItems)

	return &iam.ListRolePoliciesOutput{
		PolicyNames: pointers(w.keys),
		IsTruncated: w.more,
		Marker:      w.marker,
	}, err
}

func pointers(names []string) []*string {
	out := []*string{}
	for _, n := range names {
		out = append(out, new(n))
	}

	return out
}

func (s *IAM) deleteRolePolicy(in *iam.DeleteRolePolicyInput) (*iam.DeleteRolePolicyOutput, error) {
	r, err := s.role(*in.RoleName)
	if err != nil {
		return nil, err
	}

	if _, err := r.inline(*in.PolicyName); err != nil {
		return nil, err
	}

	delete(r.Inline, *in.PolicyName)

	return &iam.DeleteRolePolicyOutput{}, nil
}

func (s *IAM) attachRolePolicy(in *iam.AttachRolePolicyInput) (*iam.AttachRolePolicyOutput, error) {
	r, err := s.role(*in.RoleName)
	if err != nil {
		return nil, err
	}

	return &iam.AttachRolePolicyOutput{}, s.attach(&r.identity, *in.PolicyArn)
}

func (s *IAM) detachRolePolicy(in *iam.DetachRolePolicyInput) (*iam.DetachRolePolicyOutput, error) {
	r, err := s.role(*in.RoleName)
	if err != nil {
		return nil, err
	}

	return &iam.DetachRolePolicyOutput{}, r.detach(*in.PolicyArn)
}

func (s *IAM) listAttachedRolePolicies(
	in *iam.ListAttachedRolePoliciesInput,
) (*iam.ListAttachedRolePoliciesOutput, error) {
	r, err := s.role(*in.RoleName)
	if err != nil {
		return nil, err
	}

	w, err := page(r.Attached, in.Marker, in.MaxItems)

	return &iam.ListAttachedRolePoliciesOutput{
		AttachedPolicies: s.attachedShapes(w.keys),
		IsTruncated:      w.more,
		Marker:           w.marker,
	}, err
}

func (s *IAM) putUserPolicy(in *iam.PutUserPolicyInput) (*iam.PutUserPolicyOutput, error) {
	u, err := s.user(*in.UserName)
	if err != nil {
		return nil, err
	}

	return &iam.PutUserPolicyOutput{}, u.put(*in.PolicyName, *in.PolicyDocument, maxInlineUser)
}

func (s *IAM) getUserPolicy(in *iam.GetUserPolicyInput) (*iam.GetUserPolicyOutput, error) {
	u, err := s.user(*in.UserName)
	if err != nil {
		return nil, err
	}

	document, err := u.inline(*in.PolicyName)
	if err != nil {
		return nil, err
	}

	return &iam.GetUserPolicyOutput{
		UserName:       in.UserName,
		PolicyName:     in.PolicyName,
		PolicyDocument: encoded(document),
	}, nil
}

func (s *IAM) listUserPolicies(in *iam.ListUserPoliciesInput) (*iam.ListUserPoliciesOutput, error) {
	u, err := s.user(*in.UserName)
	if err != nil {
		return nil, err
	}

	w, err := page(sorted(u.Inline), in.Marker, in.MaxItems)

	return &iam.ListUserPoliciesOutput{
		PolicyNames: pointers(w.keys),
		IsTruncated: w.more,
		Marker:      w.marker,
	}, err
}

func (s *IAM) deleteUserPolicy(in *iam.DeleteUserPolicyInput) (*iam.DeleteUserPolicyOutput, error) {
	u, err := s.user(*in.UserName)
	if err != nil {
		return nil, err
	}

	if _, err := u.inline(*in.PolicyName); err != nil {
		return nil, err
	}

	delete(u.Inline, *in.PolicyName)

	return &iam.DeleteUserPolicyOutput{}, nil
}

func (s *IAM) attachUserPolicy(in *iam.AttachUserPolicyInput) (*iam.AttachUserPolicyOutput, error) {
	u, err := s.user(*in.UserName)
	if err != nil {
		return nil, err
	}

	return &iam.AttachUserPolicyOutput{}, s.attach(&u.identity, *in.PolicyArn)
}

func (s *IAM) detachUserPolicy(in *iam.DetachUserPolicyInput) (*iam.DetachUserPolicyOutput, error) {
	u, err := s.user(*in.UserName)
	if err != nil {
		return nil, err
	}

	return &iam.DetachUserPolicyOutput{}, u.detach(*in.PolicyArn)
}

func (s *IAM) listAttachedUserPolicies(
	in *iam.ListAttachedUserPoliciesInput,
) (*iam.ListAttachedUserPoliciesOutput, error) {
	u, err := s.user(*in.UserName)
	if err != nil {
		return nil, err
	}

	w, err := page(u.Attached, in.Marker, in.MaxItems)

	return &iam.ListAttachedUserPoliciesOutput{
		AttachedPolicies: s.attachedShapes(w.keys),
		IsTruncated:      w.more,
		Marker:           w.marker,
	}, err
}
