// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"time"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

// serviceState is the whole state of EC2, saved as JSON. Its methods neither lock nor know the configuration.
type serviceState struct {
	VPCs        map[string]*sdk.Vpc
	Attributes  map[string]*vpcAttributes // by VPC id
	Subnets     map[string]*sdk.Subnet    // by id, like all maps without a comment
	DHCPOptions map[string]*sdk.DhcpOptions
	LastIP      map[string]uint32               // number after the last address given out, by subnet id
	ACLs        map[string]*sdk.NetworkAcl      // network ACLs
	Internet    map[string]*sdk.InternetGateway // internet gateways
	Addresses   map[string]*sdk.Address         // Elastic IP addresses, by allocation id
	LastPublic  uint32                          // number of the last public address given out
	NATs        map[string]*sdk.NatGateway      // NAT gateways
	Tables      map[string]*sdk.RouteTable      // route tables with their routes
	Groups      map[string]*sdk.SecurityGroup   // security groups without their rules
	Rules       map[string]*sdk.SecurityGroupRule
	Interfaces  map[string]*sdk.NetworkInterface
	Volumes     map[string]*sdk.Volume
	Snapshots   map[string]*sdk.Snapshot
	// Modifications are the last ones, by the id of their volume.
	Modifications map[string]*sdk.VolumeModification
	// ModificationTimes are the starts of their modifications in the last 24 hours, the oldest first, by the id of the volume.
	ModificationTimes map[string][]time.Time

	OwnImages map[string]*copiedImage // copies of images
	Templates map[string]*sdk.LaunchTemplate
	Versions  map[string][]*sdk.LaunchTemplateVersion // by template id, oldest first
	Instances map[string]*sdk.Instance
	Extra     map[string]*instanceExtra   // by instance id
	Keys      map[string]*sdk.KeyPairInfo // by key pair id
	Endpoints map[string]*sdk.VpcEndpoint // by VPC endpoint id
	Peerings  map[string]*sdk.VpcPeeringConnection
	Tags      map[string]map[string]string // tags of every kind of resource, by resource id
	Tokens    map[string]idempotencyToken  // by operation/token
	Pending   []transition                 // scheduled transitions

	AccountOpened bool // the account got its default VPC, which may have been deleted since
}

// vpcAttributes are the attributes of a VPC that DescribeVpcAttribute shows.
type vpcAttributes struct {
	DNSSupport     bool // enableDnsSupport
	DNSHostnames   bool // enableDnsHostnames
	AddressMetrics bool // enableNetworkAddressUsageMetrics
}

// instanceExtra holds what DescribeInstances does not show of an instance.
type instanceExtra struct {
	ReservationID string // r-…
	UserData      string // in base64, as in the request
	PublicKey     string // of the key pair at launch, as the metadata service returns it; empty for none
	Shutdown      string // instance-initiated shutdown behavior: stop or terminate
	NoTermination bool   // disableApiTermination
	NoStop        bool   // disableApiStop
	Interface     string // id of the primary network interface; empty once terminated
	Impaired      bool   // the machine died although the instance should run
	Failures      int    // failed health checks in a row
	Restarts      bool   // it has run before: if it cannot be started, it is stopped again
	Role          string // name of the instance's role; empty for none
	Target        string // target lifecycle state set by Auto Scaling; empty for none

	MoreInterfaces []string // ids of the other network interfaces, in the order in which they were attached

	InterruptedAt time.Time // when a spot instance is interrupted; zero without a notice
	RebalanceAt   time.Time // when a spot instance got a rebalance recommendation; zero for none
}

// initMap replaces a nil map by an empty one.
func initMap[K comparable, V any](m *map[K]V) {
	if *m == nil {
		*m = map[K]V{}
	}
}

// initMaps replaces the nil maps of a new state or of one saved by an older version.
func (st *serviceState) initMaps() {
	initMap(&st.VPCs)
	initMap(&st.Attributes)
	initMap(&st.Subnets)
	initMap(&st.DHCPOptions)
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
	initMap(&st.Modifications)
	initMap(&st.ModificationTimes)
	initMap(&st.OwnImages)
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
