// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"cmp"
	"slices"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/ec2"
)

// state is all that EC2 remembers; it is saved as JSON. Tags live in one map, by resource id.
type state struct {
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
	Extra      map[string]*extra
	Keys       map[string]*sdk.KeyPairInfo
	Endpoints  map[string]*sdk.VpcEndpoint
	Peerings   map[string]*sdk.VpcPeeringConnection
	Tags       map[string]map[string]string
	Tokens     map[string]token
	Pending    []transition
}

type vpcAttributes struct{ DNSSupport, DNSHostnames, AddressMetrics bool }

// extra is what an instance has beyond the shape that DescribeInstances shows.
type extra struct {
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

// token is a remembered client token: what was asked and what came of it.
type token struct {
	Sum string
	IDs []string
	At  time.Time
}

// transition is a change of state that time brings.
type transition struct {
	At   time.Time
	Kind string // see settleOne
	ID   string
	Arg  string
}

func initMap[K comparable, V any](m *map[K]V) {
	if *m == nil {
		*m = map[K]V{}
	}
}

func (st *state) init() {
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

// after schedules a transition one delay from now.
func (s *Service) after(kind, id string) {
	delay := s.cfg.Delay
	if s.cfg.Provisioning != nil {
		delay = s.cfg.Provisioning(provisioned(kind), delay)
	}
	s.st.Pending = append(s.st.Pending, transition{At: s.cfg.Now().Add(delay), Kind: kind, ID: id})
	s.kick()
}

// provisioned is what operators call the things that a transition moves on.
func provisioned(transition string) string {
	switch transition {
	case toNAT:
		return "nat-gateway"
	case toNATGone:
		return "nat-gateway-deletion"
	case toVolume:
		return "volume"
	case toVolumeGone:
		return "volume-deletion"
	case toAttached:
		return "volume-attachment"
	case toDetached:
		return "volume-detachment"
	case toRunning:
		return "instance"
	case toStopped, toTerminated:
		return "instance-deletion"
	}
	return "vpc"
}

// settle carries out the transitions that are due, oldest first. The caller holds mu.
func (s *Service) settle() {
	for {
		now := s.cfg.Now()
		due := slices.ContainsFunc(s.st.Pending, func(t transition) bool { return !t.At.After(now) })
		if !due {
			return
		}
		slices.SortStableFunc(s.st.Pending, func(a, b transition) int { return cmp.Compare(a.At.UnixNano(), b.At.UnixNano()) })
		t := s.st.Pending[0]
		s.st.Pending = s.st.Pending[1:]
		s.settleOne(t)
		s.changed()
	}
}

// next is when the next transition is due.
func (s *Service) next() (time.Time, bool) {
	var at time.Time
	for _, t := range s.st.Pending {
		if at.IsZero() || t.At.Before(at) {
			at = t.At
		}
	}
	return at, !at.IsZero()
}

// The kinds of transition.
const (
	toVPC          = "vpc-available"
	toNAT          = "nat-available"
	toNATGone      = "nat-deleted"
	toNATForgotten = "nat-forgotten"
	toEndpoint     = "endpoint-available"
	toEndpointGone = "endpoint-deleted"
	toVolume       = "volume-available"
	toVolumeGone   = "volume-deleted"
	toAttached     = "volume-attached"
	toDetached     = "volume-detached"
	toModified     = "volume-modified"
	toRunning      = "instance-running"
	toStopped      = "instance-stopped"
	toTerminated   = "instance-terminated"
	toForgotten    = "instance-forgotten"
)

func (s *Service) settleOne(t transition) {
	switch t.Kind {
	case toVPC:
		if v := s.st.VPCs[t.ID]; v != nil {
			v.State = new(sdk.VpcStateAvailable)
		}
	case toNAT, toNATGone, toNATForgotten:
		s.settleNAT(t)
	case toEndpoint, toEndpointGone:
		s.settleEndpoint(t)
	case toVolume, toVolumeGone, toAttached, toDetached:
		s.settleVolume(t)
	case toRunning, toStopped, toTerminated, toForgotten:
		s.settleInstance(t)
	}
}
