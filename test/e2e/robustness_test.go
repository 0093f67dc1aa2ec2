// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-k8s/slipway/test/history"
)

// TestRobustness injects faults into the machines of a cluster while clients read and write objects through the API. The history must
// be linearizable: no acknowledged write is lost, and no read is stale. SLIPWAY_FAULTS is the number of faults; default: each once, or in
// the short form the three that were once the worst.
func TestRobustness(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	e := newEnvironment(t)
	e.runSteps(t, []step{
		{"up", createCluster},
		{"faults under load", func(e *environment) { injectFaults(e, rand.New(rand.NewPCG(seed, 0))) }},
		{"delete leaves nothing", deleteCluster},
	})
}

// faultsToInject returns the faults in their order: each kind once, and then again.
func faultsToInject(e *environment) []etcdFault {
	e.t.Helper()
	kinds := etcdFaults()
	if os.Getenv("SLIPWAY_LONG") == "" {
		kinds = slices.DeleteFunc(kinds, func(f etcdFault) bool { return !f.short })
	}
	n := len(kinds)
	if text := os.Getenv("SLIPWAY_FAULTS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			e.t.Fatalf("SLIPWAY_FAULTS is %q, not a number", text)
		}
	}
	var out []etcdFault
	for i := range n {
		out = append(out, kinds[i%len(kinds)])
	}

	return out
}

// robustnessClients is how many clients read and write at the same time.
const robustnessClients = 4

// injectFaults injects one fault after another. After each one the cluster is healthy again.
func injectFaults(e *environment, random *rand.Rand) {
	e.t.Logf("COUNT robustness: the cluster was healthy %s after apply: limits times %.1f",
		e.created.Round(time.Second), max(e.slowness(), 1))
	store := e.newAPIStore()
	recorder := history.NewRecorder(clientTimeout)
	ctx, stop := context.WithCancel(e.t.Context())
	var running sync.WaitGroup
	store.createRound(e, 0)
	for i := range robustnessClients {
		running.Go(func() { recorder.Run(ctx, store, i, 50*time.Millisecond) })
	}
	e.awaitWrites(recorder)

	var seen []history.Fault
	defer func() { // also if the cluster does not heal: what was acknowledged until then counts
		stop()
		running.Wait()
		checkHistory(e, store, recorder, seen)
	}()
	for i, f := range faultsToInject(e) {
		machine := e.chooseMember(random, f)
		store.createRound(e, int64(i)+1)
		since := recorder.NextRound()
		f.inject(e, machine)
		e.waitHealthy(8 * time.Minute)
		e.awaitWrites(recorder)
		fault := history.Fault{Kind: f.name, Gap: recorder.LongestGap(since), Healing: recorder.Since(since)}
		seen = append(seen, fault)
		e.t.Logf("COUNT robustness: %s (%s): healthy after %s, longest time without an acknowledged write %s",
			f.name, machine, fault.Healing.Round(time.Second), fault.Gap.Round(100*time.Millisecond))
		if limit := history.Limit(f.limit, e.slowness()); fault.Gap > limit {
			e.t.Errorf("%s (%s): no write was acknowledged for %s, more than %s", f.name, machine, fault.Gap, limit)
		}
	}
}

// measuredCreation is how long a cluster of three control-plane machines and two workers takes from apply until all is ready on the computer of
// docs/benchmarks.md, when nothing else runs: 39 s.
const measuredCreation = 40 * time.Second

// slowness returns how many times as long as there the cluster of this test took, in the short form, which runs next to other tests on a
// computer whose speed is not known: the machines of a fault boot as those of the cluster did. It is 1 in the long form.
func (e *environment) slowness() float64 {
	if os.Getenv("SLIPWAY_LONG") != "" {
		return 1
	}

	return e.created.Seconds() / measuredCreation.Seconds()
}

// checkHistory checks that the history is linearizable, and writes the report.
func checkHistory(e *environment, store apiStore, recorder *history.Recorder, seen []history.Fault) {
	recorder.ReadAll(e.t.Context(), robustnessClients, func(int64) history.Store { return store })
	err := recorder.Check(5 * time.Minute)
	if err != nil {
		e.t.Error(err)
	}
	report := history.Report(recorder.Count(), seen, err)
	e.t.Logf("COUNT robustness: %s", report)
	if file := os.Getenv(history.ReportVariable); file != "" && !e.t.Failed() {
		if err := history.WriteReport(file, "robustness-machines", report); err != nil {
			e.t.Error(err)
		}
	}
}

// chooseMember returns a control-plane machine for a fault: that of etcd's leader, if the fault is the leader's, and else in half of all
// cases.
func (e *environment) chooseMember(random *rand.Rand, f etcdFault) string {
	e.t.Helper()
	if isLeaders := random.IntN(2) == 0; f.leader || isLeaders {
		return e.findLeader()
	}
	machines := slices.Sorted(maps.Keys(e.listMachines("control-plane")))

	return machines[random.IntN(len(machines))]
}

// awaitWrites waits until writes are acknowledged again.
func (e *environment) awaitWrites(r *history.Recorder) {
	e.t.Helper()
	before := r.Count().Acknowledged
	e.waitUntil("writes are acknowledged", 2*time.Minute, func() error {
		if n := r.Count().Acknowledged - before; n < 10 {
			return fmt.Errorf("%d since then", n)
		}
		return nil
	})
}

// apiStore keeps each key in a ConfigMap.
type apiStore struct{ client rest.Interface }

func (e *environment) newAPIStore() apiStore {
	e.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", e.kubeconfig())
	if err != nil {
		e.t.Fatal(err)
	}
	config.QPS = 1000
	config.Burst = 1000
	config.NextProtos = []string{"http/1.1"} // a request that timed out closes its connection
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		e.t.Fatal(err)
	}

	return apiStore{client.CoreV1().RESTClient()}
}

// createRound creates the objects of a round, so that clients only update.
func (s apiStore) createRound(e *environment, round int64) {
	e.t.Helper()
	for n := range history.KeysOfRound {
		e.kubectl("create", "configmap", history.Key(round, n))
	}
}

// Read implements history.Store.
func (s apiStore) Read(ctx context.Context, key string) (string, error) {
	var object corev1.ConfigMap
	err := s.client.Get().MaxRetries(0).Namespace("default").Resource("configmaps").Name(key).Do(ctx).Into(&object)

	return object.Data["value"], err
}

// Write implements history.Store.
func (s apiStore) Write(ctx context.Context, key, value string) error {
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: key},
		Data:       map[string]string{"value": value},
	}

	return s.client.Put().MaxRetries(0).Namespace("default").Resource("configmaps").Name(key).Body(object).Do(ctx).Error()
}
