// SPDX-License-Identifier: Apache-2.0

// Package ec2 behaves as Amazon EC2's control plane does, strictly: networks, security groups, instances, volumes,
// launch templates, their eventual states, dependencies and errors. It knows neither the wire format nor how a
// machine or a network is made real: it hands a fabric.Picture and fabric.Machine values to those who do.
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
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// Machines makes instances and volumes real. Every call is idempotent.
type Machines interface {
	Launch(ctx context.Context, m netspec.Machine) error
	Terminate(ctx context.Context, id string) error
	Reboot(ctx context.Context, id string) error
	Alive(id string) bool
	Console(id string) ([]byte, error)
	Disks
}

// Disks makes volumes real. Every call is idempotent.
type Disks interface {
	CreateVolume(ctx context.Context, v netspec.Volume) error
	DeleteVolume(ctx context.Context, id string) error
	Attach(ctx context.Context, volumeID, instanceID, device string) error
	Detach(ctx context.Context, volumeID, instanceID string) error
}

// Network makes the picture real.
type Network interface {
	Sync(ctx context.Context, p netspec.Network) error
	Health() netspec.TargetHealth
}

// Profiles finds an instance profile by its name or ARN.
type Profiles interface {
	InstanceProfile(nameOrARN string) (Profile, bool)
}

// Profile is what EC2 needs to know of an IAM instance profile.
type Profile struct {
	ARN, ID, Role string // Role is the role's name; empty for a profile without one
	RoleARN       string
}

// Image is an AMI that the region offers.
type Image struct {
	ID, Name, Description, Owner string
	Architecture                 string // x86_64 or arm64
	RootDevice                   string // such as /dev/sda1
	RootSizeGiB                  int64
	Created                      time.Time
	// Unbootable says why no machine can boot from it; empty if one can.
	Unbootable string
}

// Config is what a [Service] is made of. Region, Account, Now and Rand are required; the rest may be left out.
type Config struct {
	Region          string
	Account         string
	Zones           []string // zone letters; nil means a to f in us-east-1, a to c elsewhere
	Images          []Image
	Now             func() time.Time
	Rand            io.Reader
	TransitionDelay time.Duration // how long an eventual state takes; 0 means at once
	// ProvisioningDelay, where set, is asked for the delay of each kind, as in fault.Kinds, with Delay as the usual one.
	ProvisioningDelay func(kind string, usual time.Duration) time.Duration
	Quotas            Quotas // zero fields take DefaultQuotas
	Saver             state.Backend
	// PublicIPBase begins the /16 that public addresses are from. If it is of the host, the host reaches machines by them.
	PublicIPBase netip.Addr
	// Machines and Network make it real; without them everything is a record only.
	Machines Machines
	Network  Network
	Profiles Profiles
	// LoadBalancers gives the load balancers that belong into the picture. It is called without any lock of EC2's.
	LoadBalancers func() []netbuilder.LoadBalancer
	// HostedZones gives the zones of Route 53 that VPCs' resolvers know, likewise.
	HostedZones func() []netbuilder.HostedZone
	Log         *slog.Logger
}

// Service is EC2 in one region.
type Service struct {
	cfg               Config
	instanceTypes     map[string]instanceTypeSpec
	instanceTypeNames []string   // names of types, sorted
	jobLocks          keyedMutex // one job at a time for each instance or volume
	syncMu            sync.Mutex

	store           *state.Store
	st              *serviceState
	staleReads      int            // how often a new resource is not seen
	unseenReads     map[string]int // how often it is not seen yet, by id
	createdIDs      []string       // ids made by the call under way, where somebody wants to know
	networkRevision uint64         // counts changes that the picture may show
	syncedRevision  uint64         // the gen that Network has; guarded by syncing
	syncedNetwork   string         // the picture that Network has, as text; guarded by syncing
	jobs            []func(context.Context)
	notifyPending   bool // the watchers have something to look at
	watchers        []func()
	wake            chan struct{} // Run has something to do
	networkChanged  chan struct{} // the picture may have changed
}

// New makes the service and loads its saved state. Call [Service.Run] to let work go on in the background.
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
		wake:              make(chan struct{}, 1),
		networkChanged:    make(chan struct{}, 1),
		networkRevision:   1,
		st:                &serviceState{},
	}
	s.store = &state.Store{
		Name:                "ec2",
		Backend:             cfg.Saver,
		State:               s.st,
		ApplyDueTransitions: s.applyDueTransitions,
	}
	if err := s.store.Load(); err != nil {
		return nil, err
	}

	s.st.initMaps()
	s.resumeJobs()

	return s, nil
}

// SaveTo writes what the service knows to another place, for a snapshot.
func (s *Service) SaveTo(to state.Backend) error { return s.store.SaveTo(to) }

// SetLoadBalancers names the source of load balancers. It is meant for wiring, before [Service.Run].
func (s *Service) SetLoadBalancers(f func() []netbuilder.LoadBalancer) { s.cfg.LoadBalancers = f }

// SetHostedZones names the source of hosted zones. It is meant for wiring, before [Service.Run].
func (s *Service) SetHostedZones(f func() []netbuilder.HostedZone) { s.cfg.HostedZones = f }

// AddWatcher calls f, without any lock, soon after an instance or a load balancer's target may have changed state.
// f must not block. It is meant for wiring, before [Service.Run].
func (s *Service) AddWatcher(f func()) { s.watchers = append(s.watchers, f) }

// LoadBalancersChanged says that what Balancers answers has changed.
func (s *Service) LoadBalancersChanged() {
	s.store.Lock()
	defer s.store.Unlock()
	s.markNetworkChanged()
}

// Health is the targets' health as the network sees it; nil without a network.
func (s *Service) Health() netspec.TargetHealth {
	if s.cfg.Network == nil {
		return nil
	}

	return s.cfg.Network.Health()
}

func (s *Service) wakeRunLoop() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// markChanged notes a mutation. The caller holds mu.
func (s *Service) markChanged() {
	s.store.MarkChanged()
	s.markNetworkChanged()
}

// markNetworkChanged notes that the picture may have changed. The caller holds mu.
func (s *Service) markNetworkChanged() {
	s.networkRevision++
	select {
	case s.networkChanged <- struct{}{}:
	default:
	}
}

// withLock runs f with the due transitions applied, saves what f changed, and calls the watchers.
func (s *Service) withLock(f func() error) error {
	defer s.notifyWatchers()
	return s.store.WithLock(f)
}

// runRead runs a handler under the lock and returns a copy of its answer. It refuses a request for a resource that is
// not visible yet; see [Service.SetStaleReads].
func runRead[I, O any](s *Service, do func(*I) (*O, error), in *I) (*O, error) {
	defer s.notifyWatchers()

	return state.RunRead(s.store, func(in *I) (*O, error) {
		if err := s.checkStaleReads(in); err != nil {
			return nil, err
		}

		return do(in)
	}, in)
}

// runWrite is [runRead] for a handler that changes something.
func runWrite[I, O any](s *Service, do func(*I) (*O, error), in *I) (*O, error) {
	return runRead(s, func(in *I) (*O, error) {
		out, err := do(in)
		if err == nil {
			s.markChanged()
		}

		return out, err
	}, in)
}

// readOperation makes an operation that changes nothing.
func readOperation[I, O any](s *Service, name string, do func(*I) (*O, error)) wire.Op {
	return wire.Operation(name, func(_ context.Context, in *I) (*O, error) { return runRead(s, do, in) })
}

// writeOperation makes an operation that changes something; with DryRun set it ends after authorization.
func writeOperation[I, O any](s *Service, name string, do func(*I) (*O, error)) wire.Op {
	return wire.Operation(
		name,
		func(ctx context.Context, in *I) (*O, error) { return runWrite(s, withSystemTags(ctx, s, name, do), in) },
	)
}
