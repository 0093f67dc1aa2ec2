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

// enqueueJob queues a job for Run. Jobs of the same key run one at a time. The caller holds the lock.
func (s *Service) enqueueJob(key string, f func(context.Context)) {
	s.jobs = append(s.jobs, func(ctx context.Context) {
		m := s.jobLocks.mutexFor(key)
		m.Lock()
		defer m.Unlock()
		f(ctx)
	})

	s.wake.Send()
}

// completeJob applies the transition that ends a job; cause is the job's error or nil. A job that the end of
// the process interrupted changes nothing: the next process resumes it.
func (s *Service) completeJob(ctx context.Context, kind, id string, cause error) {
	if ctx.Err() != nil {
		return
	}

	t := transition{Kind: kind, ID: id}
	if cause != nil {
		t.Arg = cause.Error()
		s.cfg.Log.Error(
			"job failed",
			slog.String("transition", kind),
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
		s.cfg.Log.Error("failed to save the state of ec2", slog.Any("error", err))
	}
}

// requestNotification makes the end of the call notify the watchers. The caller holds the lock.
func (s *Service) requestNotification() { s.notifyPending = true }

// notifyWatchers calls the watchers if a notification was requested. The caller must not hold the lock.
func (s *Service) notifyWatchers() {
	s.store.Lock()
	pending := s.notifyPending
	s.notifyPending = false
	s.store.Unlock()
	if !pending {
		return
	}

	for _, f := range s.watchers {
		f()
	}
}

// resumeJobs queues the jobs that were unfinished when the previous process stopped.
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

	for _, id := range sortedKeys(s.st.Interfaces) {
		networkInterfaceHandlers{s}.resumeInterfaceJob(s.st.Interfaces[id])
	}
}

// Run applies transitions, runs the jobs on machines and volumes, checks the health of machines and keeps the
// network up to date, until ctx ends. It returns after the running jobs have ended.
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
			s.cfg.Log.ErrorContext(ctx, "failed to save the state of ec2", slog.Any("error", err))
		}

		for _, job := range jobs {
			wg.Go(func() { job(ctx) })
		}

		waitForSignal(ctx, s.wake, wait)
	}
}

// waitForSignal waits for a signal, at most for d or until ctx ends.
func waitForSignal(ctx context.Context, signal <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-signal:
	case <-t.C:
	}
}

// runNetworkSync applies the desired network after every change. It retries a failure after a second.
func (s *Service) runNetworkSync(ctx context.Context) {
	for ctx.Err() == nil {
		wait := time.Hour
		if err := s.ensureNetworkSynced(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Log.ErrorContext(ctx, "failed to apply the network; retrying in a second", slog.Any("error", err))
			wait = time.Second
		}

		waitForSignal(ctx, s.networkChanged, wait)
	}
}

// ensureNetworkSynced returns when the network is at least as new as the state at the time of the call.
func (s *Service) ensureNetworkSynced(ctx context.Context) error {
	if s.cfg.Network == nil {
		return nil
	}

	s.store.Lock()
	revision := s.networkRevision
	s.store.Unlock()
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	if s.syncedRevision >= revision {
		return nil
	}

	network, built := s.buildDesiredNetwork()
	text, err := json.Marshal(network)
	if err != nil {
		return fmt.Errorf("encode the desired network: %w", err)
	}

	if string(text) != s.syncedNetwork {
		if err := s.cfg.Network.Sync(ctx, network); err != nil {
			return fmt.Errorf("apply the desired network: %w", err)
		}

		s.syncedNetwork = string(text)
	}

	s.syncedRevision = built

	return nil
}

// buildDesiredNetwork returns the network that should exist, and the revision that it reflects.
func (s *Service) buildDesiredNetwork() (netspec.Network, uint64) {
	s.store.Lock()
	revision := s.networkRevision
	s.store.Unlock()
	var balancers []netbuilder.LoadBalancer
	if s.cfg.LoadBalancers != nil {
		balancers = s.cfg.LoadBalancers() // without the lock: load balancing calls EC2 under its own
	}

	var zones []netbuilder.HostedZone
	if s.cfg.HostedZones != nil {
		zones = s.cfg.HostedZones()
	}

	s.store.Lock()
	defer s.store.Unlock()
	in := s.st.networkInput(balancers)
	in.HostedZones = zones

	return netbuilder.Build(in), revision
}

// networkInput returns the state in the form that netbuilder reads. It shares the maps of the state: the
// caller holds the lock as long as it uses the result.
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

// DesiredNetwork returns the network that should exist.
func (s *Service) DesiredNetwork() netspec.Network {
	network, _ := s.buildDesiredNetwork()
	return network
}

// failuresUntilImpaired is the number of failed health checks in a row after which an instance is impaired. A
// single failure may be due to a machine that is still booting.
const failuresUntilImpaired = 2

// runHealthChecks checks every half second whether the machines of running instances are alive.
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

// recordHealthCheck records the result of a health check of one machine.
func (s *Service) recordHealthCheck(id string, alive bool) {
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
		s.cfg.Log.Error("failed to save the state of ec2", slog.Any("error", err))
	}
}
