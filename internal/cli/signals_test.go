// SPDX-License-Identifier: Apache-2.0

package cli_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation"
	cfntypes "github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// fleet stands for the agents of machines that a region in records mode has on paper only: each machine tells its stack
// once how it is, and ends when it is to be terminated, as the agent does.
type fleet struct {
	mu sync.Mutex
	// broken is the type of machines that fail; the others are well.
	broken string
	told   map[string]bool
}

// startFleet has the machines of a region tell their stack that they are well, until the test ends.
func startFleet(t *testing.T, r regiontest.Region) {
	t.Helper()
	f := &fleet{told: map[string]bool{}}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.run(ctx, r) }()
	t.Cleanup(func() { cancel(); <-done })
}

// signals is the command "signals [TYPE]": machines tell their stack how they are from now on; those of TYPE fail.
func signals(ts *testscript.TestScript, _ bool, args []string) {
	f, _ := ts.Value("fleet").(*fleet)
	r, ok := ts.Value("region").(regiontest.Region)
	if f == nil || !ok || len(args) > 1 {
		ts.Fatalf("usage: signals [TYPE]")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.told == nil {
		f.told = map[string]bool{}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { defer close(done); f.run(ctx, r) }()
		ts.Defer(func() { cancel(); <-done })
	}
	f.broken = strings.Join(args, "")
}

func (f *fleet) run(ctx context.Context, r regiontest.Region) {
	for ctx.Err() == nil {
		f.once(ctx, r)
		completeDrains(ctx, r)
		time.Sleep(100 * time.Millisecond)
	}
}

// once lets every running machine signal what its group, and for the control plane the gate, waits for. What is refused
// is tried again, as long as the resource does not exist.
func (f *fleet) once(ctx context.Context, r regiontest.Region) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out, err := ec2.NewFromConfig(r.AWSConfig()).DescribeInstances(ctx, &ec2.DescribeInstancesInput{})
	if err != nil {
		return
	}
	stacks := cloudformation.NewFromConfig(r.AWSConfig())
	for _, reservation := range out.Reservations {
		for _, in := range reservation.Instances {
			tags := map[string]string{}
			for _, t := range in.Tags {
				tags[*t.Key] = *t.Value
			}
			ids := []string{tags["aws:cloudformation:logical-id"]}
			if tags["slipway.dev/etcd-slot"] != "" {
				ids = append(ids, "ControlPlaneReady")
			}
			for _, id := range ids {
				key := *in.InstanceId + " " + id
				if in.State.Name != "running" || id == "" || f.told[key] {
					continue
				}
				status := cfntypes.ResourceSignalStatusSuccess
				if string(in.InstanceType) == f.broken {
					status = cfntypes.ResourceSignalStatusFailure
				}
				_, err := stacks.SignalResource(ctx, &cloudformation.SignalResourceInput{
					StackName: aws.String(tags["aws:cloudformation:stack-name"]), LogicalResourceId: &id, UniqueId: in.InstanceId, Status: status,
				})
				f.told[key] = err == nil || strings.Contains(err.Error(), "be signaled")
			}
		}
	}
}

// completeDrains completes the lifecycle action of every machine that is to be terminated, as an agent does that has
// nothing to drain.
func completeDrains(ctx context.Context, r regiontest.Region) {
	groups := autoscaling.NewFromConfig(r.AWSConfig())
	out, err := groups.DescribeAutoScalingInstances(ctx, &autoscaling.DescribeAutoScalingInstancesInput{})
	if err != nil {
		return
	}
	for _, in := range out.AutoScalingInstances {
		if aws.ToString(in.LifecycleState) != string(astypes.LifecycleStateTerminatingWait) {
			continue
		}
		_, _ = groups.CompleteLifecycleAction(ctx, &autoscaling.CompleteLifecycleActionInput{
			AutoScalingGroupName:  in.AutoScalingGroupName,
			LifecycleHookName:     aws.String(model.TerminationHook),
			InstanceId:            in.InstanceId,
			LifecycleActionResult: aws.String("CONTINUE"),
		})
	}
}
