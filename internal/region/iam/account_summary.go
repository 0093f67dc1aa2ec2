// SPDX-License-Identifier: Apache-2.0

package iam

import (
	"maps"

	"github.com/aws/aws-sdk-go/service/iam"
)

// accountHandlers serves what the account has as a whole, and its quotas.
type accountHandlers struct{ *IAM }

// getAccountSummary returns how much of IAM's quotas the account uses, and the quotas.
func (s accountHandlers) getAccountSummary(*iam.GetAccountSummaryInput) (*iam.GetAccountSummaryOutput, error) {
	all := s.accountUsage()
	maps.Copy(all, s.accountQuotas())
	out := &iam.GetAccountSummaryOutput{SummaryMap: map[string]*int64{}}
	for key, n := range all {
		out.SummaryMap[key] = new(int64(n))
	}

	return out, nil
}

// accountUsage returns the numbers of entities. The region has no groups, server certificates and MFA devices.
func (s accountHandlers) accountUsage() map[string]int {
	versions := 0
	for _, p := range s.st.Policies {
		versions += len(p.Versions)
	}

	return map[string]int{
		"AccountAccessKeysPresent":          1, // those of the region's root
		"AccountMFAEnabled":                 0,
		"AccountPasswordPresent":            0,
		"AccountSigningCertificatesPresent": 0,
		"GlobalEndpointTokenVersion":        1,
		"Groups":                            0,
		"InstanceProfiles":                  len(s.st.Profiles),
		"MFADevices":                        0,
		"MFADevicesInUse":                   0,
		"Policies":                          len(s.st.Policies),
		"PolicyVersionsInUse":               versions,
		"Providers":                         len(s.st.OIDCProviders),
		"Roles":                             len(s.st.Roles),
		"ServerCertificates":                0,
		"Users":                             len(s.st.Users),
	}
}

// accountQuotas returns the quotas of the account. Those without a constant are AWS's defaults for what the
// region does not limit.
func (s accountHandlers) accountQuotas() map[string]int {
	return map[string]int{
		"AccessKeysPerUserQuota":          maxAccessKeys,
		"AssumeRolePolicySizeQuota":       maxTrustPolicyBytes,
		"AttachedPoliciesPerGroupQuota":   maxAttachedPolicies,
		"AttachedPoliciesPerRoleQuota":    maxAttachedPolicies,
		"AttachedPoliciesPerUserQuota":    maxAttachedPolicies,
		"GroupPolicySizeQuota":            5120,
		"GroupsPerUserQuota":              10,
		"GroupsQuota":                     300,
		"InstanceProfilesQuota":           s.cfg.Quotas.InstanceProfiles,
		"PoliciesQuota":                   1500,
		"PolicySizeQuota":                 maxManagedPolicyBytes,
		"PolicyVersionsInUseQuota":        10000,
		"RolePolicySizeQuota":             maxRoleInlineBytes,
		"RolesQuota":                      s.cfg.Quotas.Roles,
		"ServerCertificatesQuota":         20,
		"SigningCertificatesPerUserQuota": 2,
		"UserPolicySizeQuota":             maxUserInlineBytes,
		"UsersQuota":                      5000,
		"VersionsPerPolicyQuota":          maxPolicyVersions,
	}
}
