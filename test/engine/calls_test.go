// SPDX-License-Identifier: Apache-2.0

package engine_test

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/slipway-k8s/slipway/internal/cluster"
	"github.com/slipway-k8s/slipway/internal/cluster/apply"
	"github.com/slipway-k8s/slipway/internal/cluster/destroy"
	"github.com/slipway-k8s/slipway/internal/cluster/manifests"
	"github.com/slipway-k8s/slipway/internal/cluster/operation"
	"github.com/slipway-k8s/slipway/internal/infra/aws/transport"
	"github.com/slipway-k8s/slipway/internal/lib/asset"
	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
	"github.com/slipway-k8s/slipway/internal/lib/filesum"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// commandBudget is the upper limit of one command.
type commandBudget struct {
	calls   int
	seconds float64
}

// callBudgets are the upper limits for a highly available private cluster with a bastion, a load balancer for
// it, and an SSH key, by the number of its worker groups. A call takes 50 ms; time that the processor needs is not
// part of the seconds.
func callBudgets() map[int]map[string]commandBudget {
	return map[int]map[string]commandBudget{
		3: {
			"create": {40, 2},
			// One call sets the bastions' deregistration delay: CreateTargetGroup takes no attributes.
			// Three calls sign the documents in the state store and mark the volume with their revision.
			// Each of the three slots has a role of its own: four calls each.
			// The end of an apply reads what it created once, also roles, the key, load balancers and their target groups.
			"apply":  {198, 2.6},
			"plan":   {40, 0.7},
			"delete": {129, 4},
		},
		50: {
			"create": {87, 4},
			// 339 calls, and in some runs a third DescribeAutoScalingGroups.
			"apply":  {340, 5.6},
			"plan":   {40, 1.5},
			"delete": {224, 6}, // two per further group: it and its launch template are deleted
		},
	}
}

// TestCalls creates, applies, plans and deletes a cluster with the state in S3, as the commands do, and compares the
// number of calls and the time that they take with their limits. What is new is seen at once here, so that the numbers do not
// depend on chance; TestCostOfTheVisibilityDelay measures the repeats.
func TestCalls(t *testing.T) {
	budgets := callBudgets()
	for _, groups := range slices.Sorted(maps.Keys(budgets)) {
		t.Run(strconv.Itoa(groups), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCaller(t, newBastionSet(t, groups))
				measured := map[string]commandBudget{}
				for _, command := range []string{"create", "apply", "plan", "delete"} {
					measured[command] = c.measure(command, c.commands()[command])
				}
				for command, got := range measured {
					limit := budgets[groups][command]
					if got.calls > limit.calls || got.seconds > limit.seconds {
						t.Errorf("%s with %d worker groups: %d calls in %.2f s, allowed are %d in %.2f s",
							command, groups, got.calls, got.seconds, limit.calls, limit.seconds)
					}
				}
				time.Sleep(time.Minute)
			})
		})
	}
}

// callLatency is how long a call takes.
const callLatency = 50 * time.Millisecond

// caller runs commands on one cluster, whose state is in S3.
type caller struct {
	t      *testing.T
	region regiontest.Region
	config sdk.Config
	set    manifest.Set
	env    cluster.Env
}

func newCaller(t *testing.T, set manifest.Set) *caller {
	t.Helper()
	r := regiontest.StartWith(t, regiontest.Options{InProcess: true})
	c := &caller{t: t, region: r, set: set, config: slowConfig(r, callLatency)}
	c.env = cluster.Env{
		Now:        time.Now,
		Registries: assettest.Registries{},
		Operator:   operation.Initiator{Owner: "me@host", PID: 1, Command: "slipway", Tool: "test"},
		Tool:       "test",
		AgentPath:  writeAgent(t),
		Sums:       filesum.Cache{Now: time.Now},
	}
	initState(t, r)
	return c
}

// writeAgent writes the head of a program for amd64, which is what apply reads of an agent.
func writeAgent(t *testing.T) string {
	t.Helper()
	const machineAt = 18
	head := make([]byte, machineAt+2)
	copy(head, elf.ELFMAG)
	binary.LittleEndian.PutUint16(head[machineAt:], uint16(elf.EM_X86_64))
	file := filepath.Join(t.TempDir(), "slipway-node")
	if err := os.WriteFile(file, head, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// callerStores opens a store as a new process does: its settings are read once.
type callerStores struct {
	caller *caller
	open   map[string]store.Store
	sealer store.Sealer
}

func (s *callerStores) StateURL() (string, error) { return stateURL, nil }

func (s *callerStores) State(ctx context.Context) (store.Store, store.Sealer, error) {
	return s.Open(ctx, stateURL, "")
}

func (s *callerStores) Open(ctx context.Context, url, _ string) (store.Store, store.Sealer, error) {
	if have, ok := s.open[url]; ok {
		return have, s.sealer, nil
	}
	opened, sealer, err := store.Open(ctx, url, stateOptions(s.caller.config))
	if err == nil {
		s.open[url], s.sealer = opened, sealer
	}
	return opened, sealer, err
}

func (s *callerStores) OpenDiscovery(ctx context.Context, url, _ string) (store.Store, error) {
	return store.OpenDiscovery(ctx, url, stateOptions(s.caller.config))
}

// process returns what a new process of slipway knows.
func (c *caller) process() *cluster.Env {
	env := c.env
	env.Calls = &transport.CallLimiter{}
	env.Stores = &callerStores{caller: c, open: map[string]store.Store{}}
	env.AWS = func(context.Context, string) (sdk.Config, error) { return c.config, nil }
	return &env
}

// commands returns the commands by name.
func (c *caller) commands() map[string]func(context.Context) error {
	name := c.set.Cluster.Metadata.Name
	return map[string]func(context.Context) error{
		"create": c.create,
		"apply": func(ctx context.Context) error {
			_, err := apply.Run(ctx, c.process(), apply.Request{Name: name})
			return err
		},
		"plan": func(ctx context.Context) error {
			planned, err := apply.Plan(ctx, c.process(), apply.PlanRequest{Request: apply.Request{Name: name}})
			if err == nil && !planned.Review.IsEmpty() {
				err = fmt.Errorf("the plan is not empty: %v", planLines(planned.Review.Plan))
			}
			return err
		},
		"delete": func(ctx context.Context) error {
			outcome, err := destroy.Run(ctx, c.process(), destroy.Request{Name: name})
			if err == nil && outcome != destroy.Deleted {
				err = fmt.Errorf("the outcome is %d", outcome)
			}
			return err
		},
	}
}

// create writes the cluster into the state store.
func (c *caller) create(ctx context.Context) error {
	catalog, err := asset.LoadEmbedded()
	if err != nil {
		return err
	}
	env := c.process()
	s, sealer, err := env.Stores.State(ctx)
	if err != nil {
		return err
	}
	if catalog, err = manifests.PinImages(ctx, env, catalog, c.set); err != nil {
		return err
	}
	created := manifests.NewCluster{Store: s, Sealer: sealer, Set: c.set, Catalog: catalog}
	if err := created.RefuseExisting(ctx); err != nil {
		return err
	}
	return created.Write(ctx, env)
}

// measure runs a command, and prints and returns its calls and its duration.
func (c *caller) measure(name string, run func(context.Context) error) commandBudget {
	c.t.Helper()
	before := c.region.CallCounts()
	begin := time.Now()
	if err := run(c.t.Context()); err != nil {
		c.t.Fatalf("%s: %v", name, err)
	}
	got := commandBudget{seconds: time.Since(begin).Seconds()}
	inS3 := 0
	var lines []string
	after := c.region.CallCounts()
	for _, op := range slices.Sorted(maps.Keys(after)) {
		n := after[op] - before[op]
		got.calls += n
		if strings.HasPrefix(op, "s3:") {
			inS3 += n
		}
		if n > 0 {
			lines = append(lines, fmt.Sprintf("%s %d", op, n))
		}
	}
	printFigure(c.t, "calls: %s with %d worker groups: %d calls, of which %d to S3, in %.2f s of 50 ms a call",
		name, len(c.set.Groups)-2, got.calls, inS3, got.seconds)
	c.t.Logf("%s:\n  %s", name, strings.Join(lines, "\n  "))
	return got
}

// newBastionSet is the highly available private cluster that is compared with kops: a bastion behind a load
// balancer, an SSH key, and groups of workers over three zones.
func newBastionSet(tb testing.TB, workers int) manifest.Set {
	tb.Helper()
	var b strings.Builder
	b.WriteString(`apiVersion: slipway.dev/v1alpha1
kind: Cluster
metadata: {name: demo}
spec:
  cloudProvider: {aws: {region: us-east-1}}
  sshAccess: [192.0.2.0/24]
  sshKey: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPLLbNYYsVe9WrZhsnw7dmEhqHxzyZyqzqeoAxxhCcc8 operator@example.com
  networking:
    subnets:
`)
	for _, zone := range []string{"a", "b", "c"} {
		fmt.Fprintf(&b, "    - {name: public-%[1]s, zone: us-east-1%[1]s, type: Public}\n", zone)
		fmt.Fprintf(&b, "    - {name: private-%[1]s, zone: us-east-1%[1]s, type: Private}\n", zone)
	}
	group := func(name, spec string) {
		fmt.Fprintf(&b, "---\napiVersion: slipway.dev/v1alpha1\nkind: InstanceGroup\n"+
			"metadata: {name: %s, labels: {slipway.dev/cluster: demo}}\nspec: {%s}\n", name, spec)
	}
	group("control-plane", "role: ControlPlane")
	group("bastion", "role: Bastion")
	for i := range workers {
		group(fmt.Sprintf("workers-%d", i), fmt.Sprintf("role: Worker, minSize: 1, maxSize: 1, subnets: [private-%c]", 'a'+i%3))
	}
	set, fs := manifest.Parse([]byte(b.String()))
	set = manifest.Default(set)
	if err := append(fs, manifest.Validate(set)...).Err(); err != nil {
		tb.Fatal(err)
	}
	return set
}
