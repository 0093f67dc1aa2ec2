// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"cmp"
	"slices"
	"time"

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

// idempotencyToken is a remembered client token: what was asked and what came of it.
type idempotencyToken struct {
	Sum string
	IDs []string
	At  time.Time
}

// transition is a change of state that time brings.
type transition struct {
	At   time.Time
	Kind string // see applyTransition
	ID   string
	Arg  string
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

// scheduleTransition schedules a transition one delay from now.
func (s *Service) scheduleTransition(kind, id string) {
	delay := s.cfg.TransitionDelay
	if s.cfg.ProvisioningDelay != nil {
		delay = s.cfg.ProvisioningDelay(provisioningKind(kind), delay)
	}

	s.st.Pending = append(s.st.Pending, transition{At: s.cfg.Now().Add(delay), Kind: kind, ID: id})
	s.wakeRunLoop()
}

// provisioningKind is what operators call the things that a transition moves on.
func provisioningKind(transition string) string {
	switch transition {
	case transitionNATAvailable:
		return "nat-gateway"
	case transitionNATDeleted:
		return "nat-gateway-deletion"
	case transitionVolumeAvailable:
		return "volume"
	case transitionVolumeDeleted:
		return "volume-deletion"
	case transitionVolumeAttached:
		return "volume-attachment"
	case transitionVolumeDetached:
		return "volume-detachment"
	case transitionInstanceRunning:
		return "instance"
	case transitionInstanceStopped, transitionInstanceTerminated:
		return "instance-deletion"
	}

	return "vpc"
}

// applyDueTransitions carries out the transitions that are due, oldest first. The caller holds mu.
func (s *Service) applyDueTransitions() {
	for {
		now := s.cfg.Now()
		due := slices.ContainsFunc(s.st.Pending, func(t transition) bool { return !t.At.After(now) })
		if !due {
			return
		}

		slices.SortStableFunc(
			s.st.Pending,
			func(a, b transition) int { return cmp.Compare(a.At.UnixNano(), b.At.UnixNano()) },
		)

		t := s.st.Pending[0]
		s.st.Pending = s.st.Pending[1:]
		s.applyTransition(t)
		s.markChanged()
	}
}

// nextTransitionTime is when the next transition is due.
func (s *Service) nextTransitionTime() (time.Time, bool) {
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
	transitionVPCAvailable       = "vpc-available"
	transitionNATAvailable       = "nat-available"
	transitionNATDeleted         = "nat-deleted"
	transitionNATExpired         = "nat-forgotten"
	transitionEndpointAvailable  = "endpoint-available"
	transitionEndpointDeleted    = "endpoint-deleted"
	transitionVolumeAvailable    = "volume-available"
	transitionVolumeDeleted      = "volume-deleted"
	transitionVolumeAttached     = "volume-attached"
	transitionVolumeDetached     = "volume-detached"
	transitionInstanceRunning    = "instance-running"
	transitionInstanceStopped    = "instance-stopped"
	transitionInstanceTerminated = "instance-terminated"
	transitionInstanceExpired    = "instance-forgotten"
)

func (s *Service) applyTransition(t transition) {
	switch t.Kind {
	case transitionVPCAvailable:
		s.applyVPCTransition(t)
	case transitionNATAvailable, transitionNATDeleted, transitionNATExpired:
		s.applyNATGatewayTransition(t)
	case transitionEndpointAvailable, transitionEndpointDeleted:
		s.applyEndpointTransition(t)
	case transitionVolumeAvailable,
		transitionVolumeDeleted,
		transitionVolumeAttached,
		transitionVolumeDetached:
		s.applyVolumeTransition(t)

	case transitionInstanceRunning,
		transitionInstanceStopped,
		transitionInstanceTerminated,
		transitionInstanceExpired:
		s.applyInstanceTransition(t)
	}
}
