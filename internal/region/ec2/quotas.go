// SPDX-License-Identifier: Apache-2.0

package ec2

// Quotas are the limits of the region. The default of a field that is zero is that of [DefaultQuotas].
type Quotas struct {
	VPCs             int // in the region
	InternetGateways int // in the region
	Addresses        int // Elastic IP addresses in the region
	NATsPerZone      int // NAT gateways in an availability zone
	SubnetsPerVPC    int
	TablesPerVPC     int // route tables in a VPC
	RoutesPerTable   int // routes in a route table, the local ones included
	GroupsPerVPC     int // security groups in a VPC
	RulesPerGroup    int // rules of a security group in one direction
	GroupsPerENI     int // security groups of a network interface
	VCPUs            int // vCPUs of all instances that are not terminated
	Volumes          int // in the region
	Templates        int // launch templates in the region
	TemplateVersions int // versions of a launch template
}

// DefaultQuotas returns the quotas of a new AWS account (EC2 and VPC user guides, 2025), except for VCPUs: a
// new account has 5 on-demand vCPUs, too few for a highly available cluster.
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
		Templates:        5000,
		TemplateVersions: 10000,
	}
}

// WithDefaults returns q with each zero field set to that of [DefaultQuotas].
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
		{&q.Templates, d.Templates},
		{&q.TemplateVersions, d.TemplateVersions},
	} {
		if *f.have == 0 {
			*f.have = f.want
		}
	}

	return q
}
