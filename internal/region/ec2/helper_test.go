// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	client "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/lib/awsfix/awstest"
	"github.com/slipway-k8s/slipway/internal/region/ec2"
	"github.com/slipway-k8s/slipway/internal/region/netspec"
	"github.com/slipway-k8s/slipway/internal/region/wire"
)

// clock is a clock that tests set.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func newClock() *clock { return &clock{t: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

const image = "ami-0123456789abcdef0"

func config(c *clock) ec2.Config {
	return ec2.Config{
		Region: "us-east-1", Account: "000000000000", Now: c.Now, Rand: rand.New(rand.NewSource(1)), TransitionDelay: 200 * time.Millisecond,
		Images: []ec2.Image{{ID: image, Name: "debian-12-amd64", Owner: "136693071363", Architecture: "x86_64", RootDevice: "/dev/xvda", RootSizeGiB: 8}},
	}
}

// region is a service, a real client of it over HTTP, and the clock they share.
type region struct {
	*client.Client
	svc   *ec2.Service
	clock *clock
}

func newRegion(t *testing.T, change ...func(*ec2.Config)) region {
	t.Helper()
	c := newClock()
	cfg := config(c)
	for _, f := range change {
		f(&cfg)
	}
	svc, err := ec2.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return region{Client: dial(t, svc.Wire()), svc: svc, clock: c}
}

// dial serves a service without signatures and IAM, and returns a client for it.
func dial(t *testing.T, s wire.Service) *client.Client {
	t.Helper()
	e := wire.NewEndpoint(s)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e.Serve(w, r.WithContext(wire.WithCaller(r.Context(), wire.Caller{Root: true})), "req-1", nil)
	}))
	t.Cleanup(server.Close)
	return client.NewFromConfig(awstest.NewConfig(server.URL, "us-east-1", credentials.NewStaticCredentialsProvider("AKID", "SECRET", "")))
}

// code returns the AWS error code of err, or "" if it is nil.
func code(err error) string {
	var api smithy.APIError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &api):
		return api.ErrorCode()
	}
	return err.Error()
}

// must fails the test on an error.
func must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// machines is a fake of ec2.Machines in memory.
type machines struct {
	mu      sync.Mutex
	live    map[string]netspec.Machine
	volumes map[string]string // instance by volume; empty if the volume is not attached
	mounted map[string]bool   // volumes with a mounted file system
	log     []string
	fail    error
}

func newMachines() *machines {
	return &machines{live: map[string]netspec.Machine{}, volumes: map[string]string{}, mounted: map[string]bool{}}
}

func (m *machines) do(line string, f func()) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.log = append(m.log, line)
	if m.fail != nil {
		return m.fail
	}
	f()
	return nil
}

// lines returns what was done so far.
func (m *machines) lines() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.log)
}

// started returns what a machine that runs was started with.
func (m *machines) started(id string) netspec.Machine {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.live[id]
}

func (m *machines) Launch(_ context.Context, x netspec.Machine) error {
	return m.do("launch "+x.Iface.Addr.String(), func() { m.live[x.ID] = x })
}

func (m *machines) Terminate(_ context.Context, id string) error {
	return m.do("terminate", func() { delete(m.live, id) })
}

func (m *machines) Stop(_ context.Context, id string) error {
	return m.do("stop", func() { delete(m.live, id) })
}
func (m *machines) Reboot(context.Context, string) error { return m.do("reboot", func() {}) }
func (m *machines) Alive(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.live[id]
	return ok
}
func (m *machines) Console(string) ([]byte, error) { return []byte("login:"), nil }
func (m *machines) CreateVolume(_ context.Context, v netspec.Volume) error {
	return m.do(fmt.Sprintf("create volume of %d GiB", v.Size), func() {
		if _, exists := m.volumes[v.ID]; !exists {
			m.volumes[v.ID] = ""
		}
	})
}

func (m *machines) DeleteVolume(_ context.Context, id string) error {
	return m.do("delete volume", func() { delete(m.volumes, id) })
}

func (m *machines) Attach(_ context.Context, v, i, device string) error {
	return m.do("attach "+device, func() { m.volumes[v] = i })
}

func (m *machines) Detach(_ context.Context, v, _ string) error {
	if m.isMounted(v) {
		return netspec.ErrVolumeBusy
	}
	return m.do("detach", func() { m.volumes[v] = "" })
}

func (m *machines) ForceDetach(_ context.Context, v, _ string) error {
	return m.do("force-detach", func() { m.volumes[v] = ""; delete(m.mounted, v) })
}

func (m *machines) setMounted(v string, mounted bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mounted[v] = mounted
}

func (m *machines) isMounted(v string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mounted[v]
}

func filters(name, value string) []types.Filter {
	return []types.Filter{{Name: &name, Values: []string{value}}}
}

func resourceKinds(names ...types.InstanceType) []types.InstanceType { return names }
