// SPDX-License-Identifier: Apache-2.0

package autoscaling_test

import (
	"context"
	"encoding/json"
	"math/rand"
	"sync"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/internal/region/autoscaling"
	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/elbv2"
	"github.com/slipway-k8s/slipway/internal/region/netspec"
)

// machines is a fake of ec2.Machines in memory; tests remove machines from it.
type machines struct {
	mu   sync.Mutex
	live map[string]bool
}

func (m *machines) Launch(_ context.Context, x netspec.Machine) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.live[x.ID] = true
	return nil
}

func (m *machines) Terminate(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.live, id)
	return nil
}

func (m *machines) Stop(ctx context.Context, id string) error { return m.Terminate(ctx, id) }

func (m *machines) Alive(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.live[id]
}

func (m *machines) all() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for id := range m.live {
		out = append(out, id)
	}
	return out
}

func (m *machines) Reboot(context.Context, string) error                 { return nil }
func (m *machines) Console(string) ([]byte, error)                       { return nil, nil }
func (m *machines) CreateVolume(context.Context, netspec.Volume) error   { return nil }
func (m *machines) DeleteVolume(context.Context, string) error           { return nil }
func (m *machines) Attach(context.Context, string, string, string) error { return nil }
func (m *machines) Detach(context.Context, string, string) error         { return nil }
func (m *machines) ForceDetach(context.Context, string, string) error    { return nil }

// memory is a backend that stores the state of services as JSON.
type memory struct {
	mu    sync.Mutex
	saved map[string][]byte
}

func (m *memory) Save(name string, v any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	b, err := json.Marshal(v)
	m.saved[name] = b
	return err
}

func (m *memory) Load(name string, v any) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.saved[name] == nil {
		return nil
	}
	return json.Unmarshal(m.saved[name], v)
}

// startServices starts the services with saved state, as a region does, and returns a function that stops them.
func startServices(t *testing.T, m *machines, saved *memory, seed int64) (*stack, func()) {
	t.Helper()
	s := &stack{}
	random := rand.New(&lockedSource{src: rand.NewSource(seed)})
	var err error
	s.cloud, err = ec2.New(ec2.Config{
		Region: "eu-west-1", Account: "000000000000", Now: time.Now, Rand: random, State: saved, Machines: m,
		Images: []ec2.Image{{ID: "ami-0123456789abcdef0", Architecture: "x86_64", RootDevice: "/dev/xvda", RootSizeGiB: 8}},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.elb, err = elbv2.New(elbv2.Config{Region: "eu-west-1", Account: "000000000000", Now: time.Now, Rand: random, Cloud: s.cloud, State: saved})
	if err != nil {
		t.Fatal(err)
	}
	s.svc, err = autoscaling.New(autoscaling.Config{
		Region: "eu-west-1", Account: "000000000000", Now: time.Now, Rand: random, EC2: s.cloud, TargetGroups: s.elb, State: saved,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.cloud.AddWatcher(s.svc.RequestReconcile)
	s.dial(t)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, run := range []func(context.Context){s.cloud.Run, s.elb.Run, s.svc.Run} {
		wg.Go(func() { run(ctx) })
	}
	stop := func() { cancel(); wg.Wait() }
	t.Cleanup(stop)
	return s, stop
}

// lockedSource is a random source for several goroutines.
type lockedSource struct {
	mu  sync.Mutex
	src rand.Source
}

func (l *lockedSource) Int63() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.src.Int63()
}

func (l *lockedSource) Seed(seed int64) { l.src.Seed(seed) }

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 1000 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("timed out waiting for: " + what)
}

func TestDeadMachinesAreReplacedAlsoAfterARestart(t *testing.T) {
	m, saved := &machines{live: map[string]bool{}}, &memory{saved: map[string][]byte{}}
	s, stop := startServices(t, m, saved, 1)
	g := s.createTestNetwork(t.Context(), t)
	s.createGroup(t, g, 1)
	replaced := func(s *stack, old string) func() bool {
		return func() bool {
			now := zones(s.describeGroup(t))
			live := m.all()
			return len(live) == 1 && live[0] != old && len(now) == 1 && len(s.targets(t, g.targets)) == 1
		}
	}
	waitFor(t, "the first machine", replaced(s, ""))
	first := m.all()[0]
	_ = m.Terminate(t.Context(), first) // the machine dies
	waitFor(t, "its replacement", replaced(s, first))
	second := m.all()[0]
	stop()
	_ = m.Terminate(t.Context(), second) // the machine dies while the services are stopped
	again, _ := startServices(t, m, saved, 2)
	waitFor(t, "a replacement after the restart", replaced(again, second))
}
