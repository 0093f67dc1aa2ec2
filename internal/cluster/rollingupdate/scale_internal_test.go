// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/infra/awskind"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// bootTime is how long a machine of the simulation takes to become Ready.
const bootTime = 40 * time.Second

// simulation is AWS and Kubernetes with one large group of workers. It counts calls; time is that of synctest.
type simulation struct {
	autoscalingAPI // calls that the test does not expect
	ec2API

	client *fake.Clientset
	mu     sync.Mutex
	ids    []string
	byID   map[string]simulatedMachine
	nextID int
	calls  map[string]int
}

// simulatedMachine is a machine of the simulation.
type simulatedMachine struct {
	version  string
	launched time.Time
}

func newSimulation(size int) *simulation {
	s := &simulation{client: fake.NewClientset(), byID: map[string]simulatedMachine{}, calls: map[string]int{}}
	for range size {
		id := s.launch("1")
		s.join(id)
	}

	s.client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		s.count("kubernetes")
		return false, nil, nil
	})

	return s
}

func (s *simulation) count(service string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[service]++
}

// launch adds a machine; the caller holds the lock, or is alone.
func (s *simulation) launch(version string) string {
	s.nextID++
	id := fmt.Sprintf("i-%04d", s.nextID)
	s.ids = append(s.ids, id)
	s.byID[id] = simulatedMachine{version: version, launched: time.Now()}

	return id
}

// join adds the node of a machine.
func (s *simulation) join(id string) {
	err := s.client.Tracker().Add(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-" + id},
		Spec:       corev1.NodeSpec{ProviderID: "aws:///us-east-1a/" + id},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now(),
		}}},
	})
	if err != nil {
		panic(err)
	}
}

func (s *simulation) DescribeAutoScalingGroups(
	context.Context,
	*autoscaling.DescribeAutoScalingGroupsInput,
	...func(*autoscaling.Options),
) (*autoscaling.DescribeAutoScalingGroupsOutput, error) {
	s.count("aws")
	s.mu.Lock()
	defer s.mu.Unlock()
	group := astypes.AutoScalingGroup{
		AutoScalingGroupName: aws.String("workers.demo"),
		DesiredCapacity:      aws.Int32(int32(len(s.ids))),
		LaunchTemplate:       &astypes.LaunchTemplateSpecification{Version: aws.String("2")},
		Tags: []astypes.TagDescription{
			{Key: aws.String(awskind.TagCluster), Value: aws.String("demo")},
			{Key: aws.String(awskind.TagGroup), Value: aws.String("workers")},
		},
	}
	for _, id := range s.ids {
		group.Instances = append(group.Instances, astypes.Instance{
			InstanceId:     aws.String(id),
			LifecycleState: astypes.LifecycleStateInService,
			LaunchTemplate: &astypes.LaunchTemplateSpecification{Version: aws.String(s.byID[id].version)},
		})
	}

	return &autoscaling.DescribeAutoScalingGroupsOutput{AutoScalingGroups: []astypes.AutoScalingGroup{group}}, nil
}

// DescribeLaunchTemplates finds none: the group has the newest version of its template.
func (s *simulation) DescribeLaunchTemplates(
	context.Context,
	*ec2.DescribeLaunchTemplatesInput,
	...func(*ec2.Options),
) (*ec2.DescribeLaunchTemplatesOutput, error) {
	s.count("aws")

	return &ec2.DescribeLaunchTemplatesOutput{}, nil
}

func (s *simulation) DescribeInstances(
	context.Context,
	*ec2.DescribeInstancesInput,
	...func(*ec2.Options),
) (*ec2.DescribeInstancesOutput, error) {
	s.count("aws")
	s.mu.Lock()
	defer s.mu.Unlock()
	var r ec2types.Reservation
	for _, id := range s.ids {
		launched := s.byID[id].launched
		r.Instances = append(r.Instances, ec2types.Instance{InstanceId: aws.String(id), LaunchTime: &launched})
	}

	return &ec2.DescribeInstancesOutput{Reservations: []ec2types.Reservation{r}}, nil
}

// CompleteLifecycleAction ends the wait for a drain, of which the simulation has none.
func (s *simulation) CompleteLifecycleAction(
	context.Context,
	*autoscaling.CompleteLifecycleActionInput,
	...func(*autoscaling.Options),
) (*autoscaling.CompleteLifecycleActionOutput, error) {
	s.count("aws")

	return &autoscaling.CompleteLifecycleActionOutput{}, nil
}

// TerminateInstanceInAutoScalingGroup replaces a machine at once. The new one is Ready after bootTime.
func (s *simulation) TerminateInstanceInAutoScalingGroup(
	_ context.Context,
	in *autoscaling.TerminateInstanceInAutoScalingGroupInput,
	_ ...func(*autoscaling.Options),
) (*autoscaling.TerminateInstanceInAutoScalingGroupOutput, error) {
	s.count("aws")
	s.mu.Lock()
	defer s.mu.Unlock()
	id := *in.InstanceId
	s.ids = slices.DeleteFunc(s.ids, func(x string) bool { return x == id })
	delete(s.byID, id)
	if err := s.client.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("nodes"), "", "node-"+id); err != nil {
		return nil, err
	}

	next := s.launch("2")
	time.AfterFunc(bootTime, func() { s.join(next) })

	return &autoscaling.TerminateInstanceInAutoScalingGroupOutput{}, nil
}

// roll replaces all machines of a group of this size and returns how long that took, in simulated time.
func (s *simulation) roll(t *testing.T, maxUnavailable string) time.Duration {
	t.Helper()
	machines := &awsMachines{
		cluster: "demo", now: time.Now, ownership: clusterstate.Ownership{}, autoscaling: s, ec2: s,
	}
	req := Request{
		Name: "demo", JoinTimeout: 10 * time.Minute, MaxUnavailable: maxUnavailable,
		Show: func([]rollout.Action) error { return nil }, Approve: func(int) error { return nil },
	}
	set := manifest.Set{}
	set.Groups = append(set.Groups, newFakeCluster(t, 0, 0).set.Groups...)
	settings, err := resolveSettings(set, req)
	if err != nil {
		t.Fatal(err)
	}

	u := &updater{
		request: req, client: s.client, machines: machines, now: time.Now,
		warn: func(diag.Findings) {}, notify: func(string, ...any) {},
		report:   newReporter(time.Now, func(Event) {}, nil),
		gates:    gateChecker{client: s.client},
		observer: observer{now: time.Now, machines: machines, client: s.client, settings: settings},
		good:     goodVersions{store: store.NewFileStore(t.TempDir()), cluster: "demo"},
	}
	result, err := run(t.Context(), u)
	if err != nil || result.Replaced != len(s.ids) {
		t.Fatalf("%+v, %v", result, err)
	}

	return result.Took
}

// TestScale replaces 1,000 machines in batches of 10 %. The reference is a serial update of 10 machines.
func TestScale(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short, since it replaces 1,000 machines")
	}

	const size = 1000
	const sample = 10
	var serial, batches time.Duration
	var calls map[string]int
	synctest.Test(t, func(t *testing.T) {
		serial = newSimulation(sample).roll(t, "1") * (size / sample)
	})
	synctest.Test(t, func(t *testing.T) {
		s := newSimulation(size)
		batches = s.roll(t, "10%")
		calls = s.calls
	})

	ratio := float64(batches) / float64(serial)
	t.Logf("%d machines: %s in batches of 10 %%, %s one after another (ratio %.3f); calls for each machine: AWS %.2f, Kubernetes %.2f",
		size, batches.Round(time.Second), serial.Round(time.Second), ratio,
		float64(calls["aws"])/size, float64(calls["kubernetes"])/size)
	if ratio > 0.02 {
		t.Errorf("the ratio is %.3f, want at most 0.02: ten batches of a hundred machines after the first one", ratio)
	}

	if calls["aws"] > 5*size {
		t.Errorf("%d calls to AWS for %d machines", calls["aws"], size)
	}
}
