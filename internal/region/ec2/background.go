// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	sdk "github.com/aws/aws-sdk-go/service/ec2"

	"github.com/slipway-k8s/slipway/internal/region/netbuilder"
	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// enqueueJob queues a job for Run. Jobs of one key run one at a time. The caller holds mu.
func (s *Service) enqueueJob(key string, f func(context.Context)) {
	s.jobs = append(s.jobs, func(ctx context.Context) {
		m := s.jobLocks.mutexFor(key)
		m.Lock()
		defer m.Unlock()
		f(ctx)
	})

	s.wakeRunLoop()
}

// completeJob carries out the transition that a job brought about. A job that was cut short by the end of the process
// changes nothing: it is resumed by the next one.
func (s *Service) completeJob(ctx context.Context, kind, id string, cause error) {
	if ctx.Err() != nil {
		return
	}

	t := transition{Kind: kind, ID: id}
	if cause != nil {
		t.Arg = cause.Error()
		s.cfg.Log.Error(
			"an instance or volume could not be made what it should be",
			slog.String("wanted", kind),
			slog.String("id", id),
			slog.Any("error", cause),
		)
	}

	err := s.withLock(func() error {
		s.applyTransition(t)
		s.markChanged()
		return nil
	})
	if err != nil {
		s.cfg.Log.Error("the state could not be saved", slog.Any("error", err))
	}
}

// requestNotification remembers to tell the watchers. The caller holds mu.
func (s *Service) requestNotification() { s.notifyPending = true }

// notifyWatchers calls the watchers if there is news.
func (s *Service) notifyWatchers() {
	s.store.Lock()
	news := s.notifyPending
	s.notifyPending = false
	s.store.Unlock()
	if !news {
		return
	}

	for _, f := range s.watchers {
		f()
	}
}

// resumeJobs queues again what a stopped process left half done.
func (s *Service) resumeJobs() {
	if s.cfg.Machines == nil {
		return
	}

	for _, id := range sortedKeys(s.st.Instances) {
		switch str(s.st.Instances[id].State.Name) {
		case sdk.InstanceStateNamePending:
			instanceHandlers{s}.beginLaunch(id)
		case sdk.InstanceStateNameShuttingDown:
			instanceHandlers{s}.beginTerminate(id)
		case sdk.InstanceStateNameStopping:
			instanceHandlers{s}.beginStop(id)
		}
	}

	for _, id := range sortedKeys(s.st.Volumes) {
		volumeHandlers{s}.resumeVolumeJobs(s.st.Volumes[id])
	}
}

// Run carries transitions out, does the work on machines and keeps the network in step, until ctx ends.
func (s *Service) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	if s.cfg.Network != nil {
		wg.Go(func() { s.runNetworkSync(ctx) })
	}

	if s.cfg.Machines != nil {
		wg.Go(func() { s.runHealthChecks(ctx) })
	}

	for ctx.Err() == nil {
		var jobs []func(context.Context)
		wait := time.Second
		err := s.withLock(func() error {
			jobs = s.jobs
			s.jobs = nil
			if at, ok := s.st.nextTransitionTime(); ok {
				wait = min(wait, max(at.Sub(s.cfg.Now()), time.Millisecond))
			}

			return nil
		})
		if err != nil {
			s.cfg.Log.ErrorContext(ctx, "the state could not be saved", slog.Any("error", err))
		}

		for _, job := range jobs {
			wg.Go(func() { job(ctx) })
		}

		waitForSignal(ctx, s.wake, wait)
	}
}

// waitForSignal waits for a signal, for d, or for the end.
func waitForSignal(ctx context.Context, signal <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-signal:
	case <-t.C:
	}
}

// runNetworkSync brings the network into step after every change; a failure is tried again after a second.
func (s *Service) runNetworkSync(ctx context.Context) {
	for ctx.Err() == nil {
		wait := time.Hour
		if err := s.ensureNetworkSynced(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Log.ErrorContext(ctx, "the network could not be brought into step", slog.Any("error", err))
			wait = time.Second
		}

		waitForSignal(ctx, s.networkChanged, wait)
	}
}

// ensureNetworkSynced returns once the network shows at least what was wanted when it was called.
func (s *Service) ensureNetworkSynced(ctx context.Context) error {
	if s.cfg.Network == nil {
		return nil
	}

	s.store.Lock()
	want := s.networkRevision
	s.store.Unlock()
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	if s.syncedRevision >= want {
		return nil
	}

	p, gen := s.buildDesiredNetwork()
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("compare the network's picture: %w", err)
	}

	if string(text) != s.syncedNetwork {
		if err := s.cfg.Network.Sync(ctx, p); err != nil {
			return fmt.Errorf("bring the network into step: %w", err)
		}

		s.syncedNetwork = string(text)
	}

	s.syncedRevision = gen

	return nil
}

// buildDesiredNetwork is the network that should exist, and the change it reflects.
func (s *Service) buildDesiredNetwork() (netspec.Network, uint64) {
	s.store.Lock()
	gen := s.networkRevision
	s.store.Unlock()
	var balancers []netbuilder.LoadBalancer
	if s.cfg.LoadBalancers != nil {
		balancers = s.cfg.LoadBalancers() // without mu: load balancing calls EC2 under its own lock
	}

	var zones []netbuilder.HostedZone
	if s.cfg.HostedZones != nil {
		zones = s.cfg.HostedZones()
	}

	s.store.Lock()
	defer s.store.Unlock()
	in := s.st.networkInput(balancers)
	in.HostedZones = zones

	return netbuilder.Build(in), gen
}

// networkInput is EC2's state as the picture's builder reads it. The caller holds mu for as long as it is used.
func (st *serviceState) networkInput(balancers []netbuilder.LoadBalancer) netbuilder.Input {
	return netbuilder.Input{
		VPCs:               st.VPCs,
		Subnets:            st.Subnets,
		RouteTables:        st.Tables,
		NATGateways:        st.NATs,
		InternetGateways:   st.Internet,
		SecurityGroupRules: st.Rules,
		Interfaces:         st.Interfaces,
		Instances:          st.Instances,
		VPCEndpoints:       st.Endpoints,
		LoadBalancers:      balancers,
	}
}

// DesiredNetwork is the network that should exist.
func (s *Service) DesiredNetwork() netspec.Network {
	p, _ := s.buildDesiredNetwork()
	return p
}

// failuresUntilImpaired is how many looks in a row must find a machine dead: one may fall into its boot.
const failuresUntilImpaired = 2

// runHealthChecks looks every half second whether machines that should run are alive.
func (s *Service) runHealthChecks(ctx context.Context) {
	for ctx.Err() == nil {
		for _, id := range s.runningInstanceIDs() {
			m := s.jobLocks.mutexFor(id)
			if !m.TryLock() {
				continue // it is being rebooted or terminated
			}

			alive := s.cfg.Machines.Alive(id)
			m.Unlock()
			s.recordHealthCheck(id, alive)
		}

		waitForSignal(ctx, nil, 500*time.Millisecond)
	}
}

func (s *Service) runningInstanceIDs() []string {
	s.store.Lock()
	defer s.store.Unlock()
	var out []string

	for _, id := range sortedKeys(s.st.Instances) {
		if str(s.st.Instances[id].State.Name) == sdk.InstanceStateNameRunning {
			out = append(out, id)
		}
	}

	return out
}

// recordHealthCheck notes what a look at a machine found.
func (s *Service) recordHealthCheck(
	id string,
	alive bool,
) {
	err := s.withLock(func() error {
		i := s.st.Instances[id]
		x := s.st.Extra[id]
		if i == nil || x == nil || str(i.State.Name) != sdk.InstanceStateNameRunning {
			return nil
		}

		if alive {
			x.Failures = 0
		} else {
			x.Failures++
		}

		if impaired := x.Failures >= failuresUntilImpaired; impaired != x.Impaired {
			x.Impaired = impaired
			s.requestNotification()
			s.markChanged()
		}

		return nil
	})
	if err != nil {
		s.cfg.Log.Error("the state could not be saved", slog.Any("error", err))
	}
}
