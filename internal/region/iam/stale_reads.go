// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/visibility"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// staleReads delays what others see of changes, as in AWS, where changes of IAM reach all of its servers and the other
// services within seconds. Its zero value delays nothing. The store's lock guards it; it is not saved.
type staleReads struct {
	now      func() time.Time
	delay    visibility.Delay
	unseen   visibility.Tracker        // new entities that calls do not see yet, by kind and name
	removed  visibility.Tracker        // roles whose removed policies and profiles a deletion still sees, by name
	policies map[string]formerPolicies // by the unique id of the role
}

// formerPolicies are the policies of a role before a change.
type formerPolicies struct {
	pending  *visibility.Pending // until decisions are made with the new ones
	policies identityPolicies
}

// SetVisibility delays the visibility of new roles, instance profiles and policies: calls of IAM and of other services that come too
// early do not see a new one that they name or would list, and decisions about a role whose policies have changed are made
// with the former ones. A role whose last policy or profile was removed cannot be deleted for that time. By default changes
// are visible at once.
func SetVisibility(s *IAM, d visibility.Delay) {
	s.store.Lock()
	defer s.store.Unlock()
	s.stale.now = s.cfg.Now
	s.stale.delay = d
	s.stale.policies = map[string]formerPolicies{}
	s.stale.unseen.SetDelay(s.cfg.Now, d)
	s.stale.removed.SetDelay(s.cfg.Now, d)
}

// The kinds of entities whose visibility is delayed.
const (
	kindRole      = "role"
	kindUser      = "user"
	kindProfile   = "instance-profile"
	kindPolicy    = "policy"
	kindAccessKey = "access-key"
)

// inlineKind returns the kind of the inline policies of a role or a user. kind is kindRole or kindUser.
func inlineKind(kind, owner string) string { return "inline-policy " + kind + " " + owner }

// trackInline starts the delay of an inline policy, if put creates it and succeeds.
func (r *staleReads) trackInline(kind string, i *identity, policy string, put func() error) error {
	_, exists := i.Inline[policy]
	err := put()
	if err == nil && !exists {
		r.track(inlineKind(kind, i.Name), policy)
	}

	return err
}

// visibleInline returns those of an identity's inline policies that a list shows.
func (r *staleReads) visibleInline(kind string, i *identity) []string {
	return r.visible(inlineKind(kind, i.Name), sortedKeys(i.Inline))
}

// track starts the delay of a new entity. The caller holds the store's lock.
func (r *staleReads) track(kind, name string) {
	if r.delay.IsZero() {
		return
	}

	now := r.now()
	maps.DeleteFunc(r.policies, func(_ string, f formerPolicies) bool { return f.pending.HasEnded(now) })
	r.unseen.Track(kind + " " + name)
}

// consume reports whether a call about an entity comes too early to see it, and counts the call. The caller holds the store's
// lock.
func (r *staleReads) consume(kind, name string) bool { return r.unseen.Hides(kind + " " + name) }

// visible returns those of the sorted names that a list shows.
func (r *staleReads) visible(kind string, names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return r.consume(kind, name) })
}

// staleHandlers carry out operations as if changes took a while to be visible.
type staleHandlers struct{ *IAM }

// wrap makes an operation refuse entities that are not visible yet, and keep the policies that it changes for a while.
func (s staleHandlers) wrap(op wire.Operation) wire.Operation {
	handle := op.Handle
	op.Handle = func(ctx context.Context, in any) (any, error) {
		if err := s.beforeOperation(op.Name, in); err != nil {
			return nil, err
		}

		answer, err := handle(ctx, in)
		if err == nil && isRemovalFromRole(op.Name) {
			s.stale.removed.Track(wire.StringMember(in, "RoleName"))
		}

		return answer, err
	}

	return op
}

// isRemovalFromRole reports whether an operation removes what prevents the deletion of a role.
func isRemovalFromRole(op string) bool {
	return slices.Contains([]string{
		"DeleteRolePolicy", "DetachRolePolicy", "RemoveRoleFromInstanceProfile",
	}, op)
}

func (s staleHandlers) beforeOperation(op string, in any) error {
	s.store.Lock()
	defer s.store.Unlock()
	if s.stale.delay.IsZero() {
		return nil
	}

	if boundary := wire.StringMember(in, "PermissionsBoundary"); s.stale.consume(kindPolicy, boundary) {
		return newNotFoundError("Policy %s does not exist or is not attachable.", boundary)
	}

	if !creates(op) {
		if err := s.checkVisible(op, in); err != nil {
			return err
		}
	}

	if isPolicyChange(op) {
		s.keepPolicies(in)
	}

	return nil
}

// creates reports whether an operation creates the entity that it names. Then only others that it names must be visible.
func creates(op string) bool {
	return strings.HasPrefix(op, "Create") && op != "CreatePolicyVersion" && op != "CreateAccessKey"
}

// checkVisible refuses a request that names an entity that is not visible yet.
func (s staleHandlers) checkVisible(op string, in any) error {
	role := wire.StringMember(in, "RoleName")
	user := wire.StringMember(in, "UserName")
	profile := wire.StringMember(in, "InstanceProfileName")
	arn := wire.StringMember(in, "PolicyArn")

	switch {
	case s.stale.consume(kindProfile, profile):
		return newNotFoundError("Instance Profile %s cannot be found.", profile)
	case s.stale.consume(kindRole, role):
		return newNotFoundError("The role with name %s cannot be found.", role)
	case s.stale.consume(kindUser, user):
		return newNotFoundError("The user with name %s cannot be found.", user)
	case s.stale.consume(kindPolicy, arn):
		return newNotFoundError("Policy %s does not exist or is not attachable.", arn)
	}

	return s.checkPartVisible(op, in)
}

// checkPartVisible refuses a request that names a part of an entity that is not visible yet: an inline policy or an access
// key.
func (s staleHandlers) checkPartVisible(op string, in any) error {
	key := wire.StringMember(in, "AccessKeyId")

	switch {
	case s.stale.consume(kindAccessKey, key):
		return newNotFoundError("The Access Key with id %s cannot be found.", key)
	case strings.HasPrefix(op, "Put"): // it creates the policy or replaces it
		return nil
	}

	policy := wire.StringMember(in, "PolicyName")
	for kind, owner := range map[string]string{
		kindRole: wire.StringMember(in, "RoleName"),
		kindUser: wire.StringMember(in, "UserName"),
	} {
		if s.stale.consume(inlineKind(kind, owner), policy) {
			return newNotFoundError("The policy with name %s cannot be found on %s.", policy, owner)
		}
	}

	return nil
}

// keepPolicies makes the next decisions about the role that a request names with the policies that it has now.
func (s staleHandlers) keepPolicies(in any) {
	r := s.st.Roles[wire.StringMember(in, "RoleName")]
	if r == nil {
		return
	}

	now := s.stale.now()
	kept := formerPolicies{pending: s.stale.delay.Begin(now), policies: s.rolePolicies(r)}
	if former, young := s.stale.policies[r.ID]; young && !former.pending.HasEnded(now) {
		kept.policies = former.policies
	}

	s.stale.policies[r.ID] = kept
}

// rolePolicies returns the policies of a role and its boundary.
func (s staleHandlers) rolePolicies(r *role) identityPolicies {
	return identityPolicies{
		own:      s.st.parseIdentityPolicies(&r.identity),
		boundary: s.st.boundaryPolicies(&r.identity),
	}
}

// effectivePolicies returns the policies with which a decision about a role is made. The caller holds the store's lock.
func (s staleHandlers) effectivePolicies(r *role) identityPolicies {
	former, young := s.stale.policies[r.ID]
	if !young || !former.pending.Hides(s.stale.now()) {
		return s.rolePolicies(r)
	}

	return former.policies
}

// isPolicyChange reports whether an operation changes what a role may do.
func isPolicyChange(op string) bool {
	return slices.Contains([]string{
		"PutRolePolicy", "DeleteRolePolicy", "AttachRolePolicy", "DetachRolePolicy",
		"PutRolePermissionsBoundary", "DeleteRolePermissionsBoundary",
	}, op)
}
