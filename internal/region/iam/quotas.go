// SPDX-License-Identifier: Apache-2.0

package iam

// Quotas are the limits of an account that AWS can raise. The default of a field that is zero is that of
// [DefaultQuotas].
type Quotas struct {
	// Roles is the number of roles. Service-linked roles count, and can exceed it.
	Roles int
	// InstanceProfiles is the number of instance profiles.
	InstanceProfiles int
}

// DefaultQuotas returns the quotas of a new AWS account, from the IAM user guide ("IAM and AWS STS quotas").
func DefaultQuotas() Quotas { return Quotas{Roles: 1000, InstanceProfiles: 1000} }

// WithDefaults returns q with each zero field set to that of [DefaultQuotas].
func (q Quotas) WithDefaults() Quotas {
	d := DefaultQuotas()
	if q.Roles == 0 {
		q.Roles = d.Roles
	}

	if q.InstanceProfiles == 0 {
		q.InstanceProfiles = d.InstanceProfiles
	}

	return q
}

// checkRoleQuota refuses one role more than the account may have.
func (s accountHandlers) checkRoleQuota() error {
	if len(s.st.Roles) >= s.cfg.Quotas.Roles {
		return newLimitError("Cannot exceed quota for RolesPerAccount: %d", s.cfg.Quotas.Roles)
	}

	return nil
}

// checkInstanceProfileQuota refuses one instance profile more than the account may have.
func (s accountHandlers) checkInstanceProfileQuota() error {
	if len(s.st.Profiles) >= s.cfg.Quotas.InstanceProfiles {
		return newLimitError("Cannot exceed quota for InstanceProfilesPerAccount: %d", s.cfg.Quotas.InstanceProfiles)
	}

	return nil
}
