// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-k8s/slipway/internal/region/authz"
)

// MissingPrincipal returns the first user or role of the account that a policy names in its principals and that does not
// exist, or is not visible yet. IAM, S3 and KMS refuse such a policy. ok is false if there is none.
func MissingPrincipal(s *IAM, p authz.Policy) (arn string, ok bool) {
	s.store.Lock()
	defer s.store.Unlock()

	return findMissingPrincipal(s, p)
}

// findMissingPrincipal is [MissingPrincipal] for a caller that holds the store's lock.
func findMissingPrincipal(s *IAM, p authz.Policy) (arn string, ok bool) {
	for _, st := range p.Statements {
		for _, name := range slices.Concat(st.Principal["AWS"], st.NotPrincipal["AWS"]) {
			if !s.st.hasPrincipal(s, name) {
				return name, true
			}
		}
	}

	return "", false
}

// hasPrincipal reports whether a principal of type AWS exists. Those of other accounts, sessions and what is no ARN count as
// existing.
func (st *serviceState) hasPrincipal(s *IAM, name string) bool {
	rest, isOwn := strings.CutPrefix(name, "arn:aws:iam::"+s.cfg.Account+":")
	kind, _, _ := strings.Cut(rest, "/")
	last := rest[strings.LastIndex(rest, "/")+1:]

	switch {
	case isOwn && kind == "role":
		r := st.Roles[last]
		return r != nil && r.roleARN(s) == name && !s.stale.consume(kindRole, last)
	case isOwn && kind == "user":
		u := st.Users[last]
		return u != nil && u.userARN(s) == name && !s.stale.consume(kindUser, last)
	}

	return true
}

// checkTrust refuses a trust policy that is malformed or names a principal of the account that does not exist.
func checkTrust(s *IAM, document string) error {
	if err := validateDocument(authz.TrustPolicy, document, maxTrustPolicyBytes); err != nil {
		return err
	}

	p, err := authz.ParsePolicy(authz.TrustPolicy, document)
	if err != nil {
		return newMalformedError(authz.ServiceMessage(err))
	}

	if arn, ok := findMissingPrincipal(s, p); ok {
		return newMalformedError(fmt.Sprintf("Invalid principal in policy: %q:%q", "AWS", arn))
	}

	return nil
}
