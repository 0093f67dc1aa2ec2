// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

// serviceState is all that EC2 remembers; it is saved as JSON. Tags live in one map, by resource id.
type serviceState struct {
	VPCs       map[string]*sdk.Vpc
	Attributes map[string]*vpcAttributes
	Subnets    map[string]*sdk.Subnet
	LastIP     map[string]uint32 // by subnet: the last address given, so that one is not reused at once
	ACLs       map[string]*sdk.NetworkAcl
	Internet   map[string]*sdk.InternetGateway
	Addresses  map[string]*sdk.Address
	LastPublic uint32
	NATs       map[string]*sdk.NatGateway
	Tables     map[string]*sdk.RouteTable
	Groups     map[string]*sdk.SecurityGroup
	Rules      map[string]*sdk.SecurityGroupRule
	Interfaces map[string]*sdk.NetworkInterface
	Volumes    map[string]*sdk.Volume
	Snapshots  map[string]*sdk.Snapshot
	Templates  map[string]*sdk.LaunchTemplate
	Versions   map[string][]*sdk.LaunchTemplateVersion
	Instances  map[string]*sdk.Instance
	Extra      map[string]*instanceExtra
	Keys       map[string]*sdk.KeyPairInfo
	Endpoints  map[string]*sdk.VpcEndpoint
	Peerings   map[string]*sdk.VpcPeeringConnection
	Tags       map[string]map[string]string
	Tokens     map[string]idempotencyToken
	Pending    []transition
}

type vpcAttributes struct{ DNSSupport, DNSHostnames, AddressMetrics bool }

// instanceExtra is what an instance has beyond the shape that DescribeInstances shows.
type instanceExtra struct {
	ReservationID string
	UserData      string // base64, as it came
	Shutdown      string // stop or terminate
	NoTermination bool
	NoStop        bool
	Interface     string // id of the primary interface
	Impaired      bool   // its machine died
	Failures      int    // looks in a row that found the machine dead
	Role          string
	Target        string // the lifecycle state that Auto Scaling wants it in
}

func initMap[K comparable, V any](m *map[K]V) {
	if *m == nil {
		*m = map[K]V{}
	}
}

func (st *serviceState) initMaps() {
	initMap(&st.VPCs)
	initMap(&st.Attributes)
	initMap(&st.Subnets)
	initMap(&st.LastIP)
	initMap(&st.ACLs)
	initMap(&st.Internet)
	initMap(&st.Addresses)
	initMap(&st.NATs)
	initMap(&st.Tables)
	initMap(&st.Groups)
	initMap(&st.Rules)
	initMap(&st.Interfaces)
	initMap(&st.Volumes)
	initMap(&st.Snapshots)
	initMap(&st.Templates)
	initMap(&st.Versions)
	initMap(&st.Instances)
	initMap(&st.Extra)
	initMap(&st.Keys)
	initMap(&st.Endpoints)
	initMap(&st.Peerings)
	initMap(&st.Tags)
	initMap(&st.Tokens)
}
