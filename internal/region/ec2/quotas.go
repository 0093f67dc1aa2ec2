// SPDX-License-Identifier: Apache-2.0

package ec2

// Quotas are the region's limits. A zero field takes its value from [DefaultQuotas].
type Quotas struct {
	VPCs             int
	InternetGateways int
	Addresses        int // elastic IPs
	NATsPerZone      int
	SubnetsPerVPC    int
	TablesPerVPC     int
	RoutesPerTable   int
	GroupsPerVPC     int
	RulesPerGroup    int // a direction
	GroupsPerENI     int
	VCPUs            int // on-demand, standard families
	Volumes          int
}

// DefaultQuotas are what a new AWS account has (EC2 and VPC user guides, 2025), but for the 5 on-demand vCPUs: no
// highly available cluster fits into those.
func DefaultQuotas() Quotas {
	return Quotas{
		VPCs:             5,
		InternetGateways: 5,
		Addresses:        5,
		NATsPerZone:      5,
		SubnetsPerVPC:    200,
		TablesPerVPC:     200,
		RoutesPerTable:   50,
		GroupsPerVPC:     2500,
		RulesPerGroup:    60,
		GroupsPerENI:     5,
		VCPUs:            4096,
		Volumes:          10000,
	}
}

// WithDefaults fills zero fields with those of [DefaultQuotas].
func (q Quotas) WithDefaults() Quotas {
	d := DefaultQuotas()
	for _, f := range []struct {
		have *int
		want int
	}{
		{&q.VPCs, d.VPCs},
		{&q.InternetGateways, d.InternetGateways},
		{&q.Addresses, d.Addresses},
		{&q.NATsPerZone, d.NATsPerZone},
		{&q.SubnetsPerVPC, d.SubnetsPerVPC},
		{&q.TablesPerVPC, d.TablesPerVPC},
		{&q.RoutesPerTable, d.RoutesPerTable},
		{&q.GroupsPerVPC, d.GroupsPerVPC},
		{&q.RulesPerGroup, d.RulesPerGroup},
		{&q.GroupsPerENI, d.GroupsPerENI},
		{&q.VCPUs, d.VCPUs},
		{&q.Volumes, d.Volumes},
	} {
		if *f.have == 0 {
			*f.have = f.want
		}
	}

	return q
}
