// SPDX-License-Identifier: Apache-2.0

// Package ec2 is the region's Amazon EC2: networks, security groups, instances, volumes and launch templates,
// with the states, dependencies, quotas and errors that AWS has.
//
// A [Service] keeps its resources in a [state.Store], as the shapes of the AWS SDK for Go v1. A change that
// takes time in AWS is a transition: it is scheduled, and applied when it is due, such as from pending to
// available. Work on machines and volumes is a job, which [Service.Run] executes in the background; a job
// ends with a transition. The network is not changed step by step: after each change the service computes the
// whole desired network and passes it to [Network].
//
// The package knows neither the wire protocol (package wire) nor how machines and networks are implemented:
// it uses them through [Machines] and [Network].
package ec2

import (
	"context"
	"io"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/netbuilder"
	"github.com/slipway-k8s/slipway/internal/region/netspec"
	"github.com/slipway-k8s/slipway/internal/region/state"
	"github.com/slipway-k8s/slipway/internal/region/visibility"
	"github.com/slipway-k8s/slipway/internal/region/wakeup"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Machines runs instances. Every method is idempotent and may be called concurrently.
type Machines interface {
	// Launch boots a machine. It returns nil if the machine runs already.
	Launch(ctx context.Context, m netspec.Machine) error
	// Stop ends a machine and keeps its root disk, with which Launch boots it again. It returns nil if the
	// machine does not exist.
	Stop(ctx context.Context, id string) error
	// Terminate removes a machine with its root disk. It returns nil if the machine does not exist.
	Terminate(ctx context.Context, id string) error
	// Reboot restarts a machine and keeps its disks.
	Reboot(ctx context.Context, id string) error
	// Alive reports whether a machine runs.
	Alive(id string) bool
	// Console returns what a machine wrote to its serial console.
	Console(id string) ([]byte, error)
	Disks
}

// Disks stores volumes. Every method is idempotent.
type Disks interface {
	// CreateVolume creates a volume, or lets an existing one grow to v.Size, also while a machine uses it.
	CreateVolume(ctx context.Context, v netspec.Volume) error
	// DeleteVolume deletes a volume and its data.
	DeleteVolume(ctx context.Context, id string) error
	// Attach makes a volume visible in a machine as device, such as /dev/sdf.
	Attach(ctx context.Context, volumeID, instanceID, device string) error
	// Detach removes a volume from a machine. It returns netspec.ErrVolumeBusy while a file system on it is
	// mounted.
	Detach(ctx context.Context, volumeID, instanceID string) error
	// ForceDetach removes a volume from a machine even if a file system on it is mounted: its device fails.
	ForceDetach(ctx context.Context, volumeID, instanceID string) error
}

// Network implements the virtual network.
type Network interface {
	// Sync changes the network into p, the whole desired network.
	Sync(ctx context.Context, p netspec.Network) error
	// Health returns the health of the load balancers' targets.
	Health() netspec.TargetHealth
}

// Profiles finds instance profiles. IAM of the region implements it.
type Profiles interface {
	// InstanceProfile returns the profile, or false if it does not exist.
	InstanceProfile(nameOrARN string) (Profile, bool)
}

// Profile is what EC2 needs to know about an IAM instance profile.
type Profile struct {
	ARN     string // of the instance profile
	ID      string // such as AIPA0123456789ABCDEF
	Role    string // name of the role; empty for a profile without a role
	RoleARN string // empty for a profile without a role
	Unseen  bool   // EC2 does not see it yet, because it is new
}

// Image is an AMI that the region offers.
type Image struct {
	ID           string    // such as ami-0123456789abcdef0
	Name         string    // such as debian-12-amd64
	Description  string    // empty for none
	Owner        string    // account id of the publisher
	Architecture string    // x86_64 or arm64
	RootDevice   string    // such as /dev/sda1
	RootSizeGiB  int64     // minimum size of the root volume
	Created      time.Time // shown as the creation date
	Deprecated   time.Time // from when lists leave the image out; zero: never
}

// Config configures a [Service]. Region, Account, Now and Rand are required.
type Config struct {
	Region  string   // such as us-east-1
	Account string   // account id of 12 digits, which owns all resources
	Zones   []string // zone letters; nil means a to f in us-east-1, a to c elsewhere
	Images  []Image  // all images that exist
	// Unbootable returns why no machine can boot from one of Images, or ""; nil means that machines can.
	Unbootable func(imageID string) string
	Now        func() time.Time // clock
	Rand       io.Reader        // source of ids and MAC addresses

	// TransitionDelay is how long each transition takes. 0 means none.
	TransitionDelay time.Duration
	// ProvisioningDelay returns the delay of one kind of transition, as in fault.Kinds; usual is
	// TransitionDelay. nil means TransitionDelay for all kinds.
	ProvisioningDelay func(kind string, usual time.Duration) time.Duration

	// LacksCapacity reports whether there is no capacity for instances of a type, or for those of [NoSpotCapacity]; nil:
	// there always is.
	LacksCapacity func(instanceType string) bool

	// DefaultVPC is whether a new account has the default VPC, as in AWS. False is an account whose default VPC was
	// deleted.
	DefaultVPC bool

	Quotas Quotas        // limits; the zero fields are set from DefaultQuotas
	State  state.Backend // keeps the state over a restart; nil for none

	// PublicIPBase is the beginning of the /16 that public addresses are allocated from; the zero value means
	// 198.19.0.0/16. If the host owns the range, processes on the host reach machines by their public
	// addresses.
	PublicIPBase netip.Addr

	Machines Machines // runs instances; nil if instances and volumes are only records
	Network  Network  // implements the network; nil if it is only a record
	Profiles Profiles // finds instance profiles; nil accepts any profile

	// LoadBalancers returns the load balancers that are part of the network, and HostedZones the hosted zones
	// of Route 53 that the resolvers of VPCs answer from. Both are called without a lock of EC2. nil means
	// none.
	LoadBalancers func() []netbuilder.LoadBalancer
	HostedZones   func() []netbuilder.HostedZone

	Log *slog.Logger // nil discards
}

// Service is EC2 in one region. Its exported methods may be called concurrently, except those that are for
// setup.
type Service struct {
	cfg               Config
	instanceTypes     map[string]instanceTypeSpec // by name
	instanceTypeNames []string                    // sorted
	jobLocks          keyedMutex                  // one job at a time for each instance or volume
	watchers          []func()                    // see AddWatcher
	wake              wakeup.Signal               // makes Run look for jobs and transitions
	networkChanged    wakeup.Signal               // makes runNetworkSync compute the network

	syncMu         sync.Mutex // guards the following two
	syncedRevision uint64     // the networkRevision that Network has
	syncedNetwork  string     // the network that Network has, as JSON

	store *state.Store // its lock guards all of the following

	st              *serviceState
	delay           visibility.Delay        // see SetVisibility
	unseen          visibility.Tracker      // new resources that calls do not see yet, by id
	seesAll         bool                    // the current call sees new resources
	freed           visibility.Tracker      // addresses whose release is still refused, by allocation id
	unseenTags      map[string]*formerTags  // the tags that filters see for a while, by id
	createdIDs      []string                // ids that the current call has created; nil if not needed
	networkRevision uint64                  // number of changes that may affect the network
	jobs            []func(context.Context) // for Run to start
	notifyPending   bool                    // the watchers must be called
}

// New returns a service with its saved state. Call [Service.Run] to run its background work.
func New(cfg Config) (*Service, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}

	if len(cfg.Zones) == 0 {
		cfg.Zones = defaultZones(cfg.Region)
	}

	cfg.Quotas = cfg.Quotas.WithDefaults()
	types, order, err := loadInstanceTypes()
	if err != nil {
		return nil, err
	}

	s := &Service{
		cfg:               cfg,
		instanceTypes:     types,
		instanceTypeNames: order,
		wake:              wakeup.New(),
		networkChanged:    wakeup.New(),
		networkRevision:   1, // more than syncedRevision, so that the first sync is not skipped
		st:                &serviceState{},
	}
	s.store = &state.Store{
		Name:                "ec2",
		Backend:             cfg.State,
		State:               s.st,
		ApplyDueTransitions: s.applyDueTransitions,
	}
	if err := s.store.Load(); err != nil {
		return nil, err
	}

	s.st.initMaps()
	s.ensureDefaultDHCPOptions()
	s.resumeJobs()

	return s, s.ensureDefaultVPC()
}

// SaveTo writes the state of the service to another backend, for a snapshot.
func (s *Service) SaveTo(to state.Backend) error { return s.store.SaveTo(to) }

// SetLoadBalancers sets Config.LoadBalancers. It is for setup, before [Service.Run].
func (s *Service) SetLoadBalancers(f func() []netbuilder.LoadBalancer) { s.cfg.LoadBalancers = f }

// SetHostedZones sets Config.HostedZones. It is for setup, before [Service.Run].
func (s *Service) SetHostedZones(f func() []netbuilder.HostedZone) { s.cfg.HostedZones = f }

// AddWatcher registers f to be called, without any lock, soon after the state of an instance may have
// changed. f must not block. It is for setup, before [Service.Run].
func (s *Service) AddWatcher(f func()) { s.watchers = append(s.watchers, f) }

// LoadBalancersChanged must be called after the result of Config.LoadBalancers or Config.HostedZones has
// changed.
func (s *Service) LoadBalancersChanged() {
	s.store.Lock()
	defer s.store.Unlock()
	s.markNetworkChanged()
}

// Health returns the health of the load balancers' targets, or nil without a network.
func (s *Service) Health() netspec.TargetHealth {
	if s.cfg.Network == nil {
		return nil
	}

	return s.cfg.Network.Health()
}

// markChanged records that the state has changed. The caller holds the lock.
func (s *Service) markChanged() {
	s.store.MarkChanged()
	s.markNetworkChanged()
}

// markNetworkChanged records that the desired network may have changed. The caller holds the lock.
func (s *Service) markNetworkChanged() {
	s.networkRevision++
	s.networkChanged.Send()
}

// withLock runs f with the due transitions applied, saves what f changed, and calls the watchers.
func (s *Service) withLock(f func() error) error {
	defer s.notifyWatchers()
	return s.store.WithLock(f)
}

// runRead runs a handler under the lock and returns a copy of its answer. It refuses a request for a resource
// that is not visible yet; see [Service.SetVisibility].
func runRead[I, O any](s *Service, do func(*I) (*O, error), in *I) (*O, error) {
	defer s.notifyWatchers()

	return state.RunRead(s.store, func(in *I) (*O, error) {
		if err := s.checkVisible(in); err != nil {
			return nil, err
		}

		return do(in)
	}, in)
}

// marking returns a handler that also records that the state has changed.
func marking[I, O any](s *Service, do func(*I) (*O, error)) func(*I) (*O, error) {
	return func(in *I) (*O, error) {
		out, err := do(in)
		if err == nil {
			s.markChanged()
		}

		return out, err
	}
}

// runWrite is [runRead] for a handler that changes something.
func runWrite[I, O any](s *Service, do func(*I) (*O, error), in *I) (*O, error) {
	return runRead(s, marking(s, do), in)
}

// runInternalRead is [runRead] for another service of the region, which sees new resources at once.
func runInternalRead[I, O any](s *Service, do func(*I) (*O, error), in *I) (*O, error) {
	defer s.notifyWatchers()

	return state.RunRead(s.store, func(in *I) (*O, error) {
		s.seesAll = true
		defer func() { s.seesAll = false }()

		return do(in)
	}, in)
}

// runInternalWrite is [runInternalRead] for a handler that changes something.
func runInternalWrite[I, O any](s *Service, do func(*I) (*O, error), in *I) (*O, error) {
	return runInternalRead(s, marking(s, do), in)
}

// readOperation returns an operation that only reads.
func readOperation[I, O any](s *Service, name string, do func(*I) (*O, error)) wire.Operation {
	return wire.NewOperation(name, func(_ context.Context, in *I) (*O, error) { return runRead(s, do, in) })
}

// writeOperation returns an operation that changes the state. A request with DryRun ends after authorization.
func writeOperation[I, O any](s *Service, name string, do func(*I) (*O, error)) wire.Operation {
	return wire.NewOperation(
		name,
		func(ctx context.Context, in *I) (*O, error) { return runWrite(s, withSystemTags(ctx, s, name, do), in) },
	)
}
