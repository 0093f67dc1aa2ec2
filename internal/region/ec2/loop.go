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

	"github.com/slipway-k8s/slipway/internal/region/fabric"
	"github.com/slipway-k8s/slipway/internal/region/picture"
)

// work queues a job for Run. Jobs of one key run one at a time. The caller holds mu.
func (s *Service) work(key string, f func(context.Context)) {
	s.jobs = append(s.jobs, func(ctx context.Context) {
		m := s.busy.of(key)
		m.Lock()
		defer m.Unlock()
		f(ctx)
	})
	s.kick()
}

// finish carries out the transition that a job brought about. A job that was cut short by the end of the process
// changes nothing: it is resumed by the next one.
func (s *Service) finish(ctx context.Context, kind, id string, cause error) {
	if ctx.Err() != nil {
		return
	}
	t := transition{Kind: kind, ID: id}
	if cause != nil {
		t.Arg = cause.Error()
		s.cfg.Log.Error("an instance or volume could not be made what it should be", slog.String("wanted", kind), slog.String("id", id), slog.Any("error", cause))
	}
	err := s.locked(func() error {
		s.settleOne(t)
		s.changed()
		return nil
	})
	if err != nil {
		s.cfg.Log.Error("the state could not be saved", slog.Any("error", err))
	}
}

// notify remembers to tell the watchers. The caller holds mu.
func (s *Service) notify() { s.news = true }

// tell calls the watchers if there is news.
func (s *Service) tell() {
	s.mu.Lock()
	news := s.news
	s.news = false
	s.mu.Unlock()
	if !news {
		return
	}
	for _, f := range s.watchers {
		f()
	}
}

// resume queues again what a stopped process left half done.
func (s *Service) resume() {
	if s.cfg.Machines == nil {
		return
	}
	for _, id := range sortedKeys(s.st.Instances) {
		switch str(s.st.Instances[id].State.Name) {
		case sdk.InstanceStateNamePending:
			s.beginLaunch(id)
		case sdk.InstanceStateNameShuttingDown:
			s.beginTerminate(id)
		case sdk.InstanceStateNameStopping:
			s.beginStop(id)
		}
	}
	for _, id := range sortedKeys(s.st.Volumes) {
		s.resumeVolume(s.st.Volumes[id])
	}
}

func (s *Service) resumeVolume(v *sdk.Volume) {
	id := str(v.VolumeId)
	switch str(v.State) {
	case sdk.VolumeStateCreating:
		s.beginVolume(id)
	case sdk.VolumeStateDeleting:
		s.endVolume(id)
	}
	for _, a := range v.Attachments {
		i := s.st.Instances[str(a.InstanceId)]
		running := i != nil && str(i.State.Name) == sdk.InstanceStateNameRunning
		switch {
		case str(a.State) == sdk.VolumeAttachmentStateAttaching && running:
			s.beginAttach(v, a)
		case str(a.State) == sdk.VolumeAttachmentStateDetaching:
			s.beginDetach(v, a)
		}
	}
}

// Run carries transitions out, does the work on machines and keeps the network in step, until ctx ends.
func (s *Service) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	if s.cfg.Network != nil {
		wg.Go(func() { s.keepSynced(ctx) })
	}
	if s.cfg.Machines != nil {
		wg.Go(func() { s.keepWatching(ctx) })
	}
	for ctx.Err() == nil {
		var jobs []func(context.Context)
		wait := time.Second
		err := s.locked(func() error {
			jobs, s.jobs = s.jobs, nil
			if at, ok := s.next(); ok {
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
		s.pause(ctx, s.wake, wait)
	}
}

// pause waits for a signal, for d, or for the end.
func (s *Service) pause(ctx context.Context, signal <-chan struct{}, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-signal:
	case <-t.C:
	}
}

// keepSynced brings the network into step after every change; a failure is tried again after a second.
func (s *Service) keepSynced(ctx context.Context) {
	for ctx.Err() == nil {
		wait := time.Hour
		if err := s.ensureSynced(ctx); err != nil && ctx.Err() == nil {
			s.cfg.Log.ErrorContext(ctx, "the network could not be brought into step", slog.Any("error", err))
			wait = time.Second
		}
		s.pause(ctx, s.moved, wait)
	}
}

// ensureSynced returns once the network shows at least what was wanted when it was called.
func (s *Service) ensureSynced(ctx context.Context) error {
	if s.cfg.Network == nil {
		return nil
	}
	s.mu.Lock()
	want := s.gen
	s.mu.Unlock()
	s.syncing.Lock()
	defer s.syncing.Unlock()
	if s.synced >= want {
		return nil
	}
	p, gen := s.picture()
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("compare the network's picture: %w", err)
	}
	if string(text) != s.shown {
		if err := s.cfg.Network.Sync(ctx, p); err != nil {
			return fmt.Errorf("bring the network into step: %w", err)
		}
		s.shown = string(text)
	}
	s.synced = gen
	return nil
}

// picture is the network that should exist, and the change it reflects.
func (s *Service) picture() (fabric.Picture, uint64) {
	s.mu.Lock()
	gen := s.gen
	s.mu.Unlock()
	var balancers []picture.Balancer
	if s.cfg.Balancers != nil {
		balancers = s.cfg.Balancers() // without mu: load balancing calls EC2 under its own lock
	}
	var zones []picture.Zone
	if s.cfg.Hosted != nil {
		zones = s.cfg.Hosted()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.view(balancers)
	in.Zones = zones
	return picture.Build(in), gen
}

// view is EC2's state as the picture's builder reads it. The caller holds mu for as long as it is used.
func (s *Service) view(balancers []picture.Balancer) picture.Input {
	return picture.Input{
		VPCs: s.st.VPCs, Subnets: s.st.Subnets, Tables: s.st.Tables, NATs: s.st.NATs, Internet: s.st.Internet,
		Rules: s.st.Rules, Interfaces: s.st.Interfaces, Instances: s.st.Instances, Endpoints: s.st.Endpoints, Balancers: balancers,
	}
}

// Picture is the network that should exist.
func (s *Service) Picture() fabric.Picture {
	p, _ := s.picture()
	return p
}

// deadAfter is how many looks in a row must find a machine dead: one may fall into its boot.
const deadAfter = 2

// keepWatching looks every half second whether machines that should run are alive.
func (s *Service) keepWatching(ctx context.Context) {
	for ctx.Err() == nil {
		for _, id := range s.running() {
			m := s.busy.of(id)
			if !m.TryLock() {
				continue // it is being rebooted or terminated
			}
			alive := s.cfg.Machines.Alive(id)
			m.Unlock()
			s.saw(id, alive)
		}
		s.pause(ctx, nil, 500*time.Millisecond)
	}
}

func (s *Service) running() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for _, id := range sortedKeys(s.st.Instances) {
		if str(s.st.Instances[id].State.Name) == sdk.InstanceStateNameRunning {
			out = append(out, id)
		}
	}
	return out
}

// saw notes what a look at a machine found.
func (s *Service) saw(id string, alive bool) { //nolint:revive // it is data, not a switch of behaviour
	err := s.locked(func() error {
		i, x := s.st.Instances[id], s.st.Extra[id]
		if i == nil || x == nil || str(i.State.Name) != sdk.InstanceStateNameRunning {
			return nil
		}
		if alive {
			x.Failures = 0
		} else {
			x.Failures++
		}
		if impaired := x.Failures >= deadAfter; impaired != x.Impaired {
			x.Impaired = impaired
			s.notify()
			s.changed()
		}
		return nil
	})
	if err != nil {
		s.cfg.Log.Error("the state could not be saved", slog.Any("error", err))
	}
}
