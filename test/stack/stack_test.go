// SPDX-License-Identifier: Apache-2.0

// Package stack_test runs the templates that Slipway writes in the local region's CloudFormation. It knows neither
// machines nor Kubernetes: the signals that machines would send are sent by the test.
package stack_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	cfn "github.com/aws/aws-sdk-go-v2/service/cloudformation"
	"github.com/aws/aws-sdk-go-v2/service/cloudformation/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/slipway-k8s/slipway/internal/region/regiontest"
	"github.com/slipway-k8s/slipway/internal/target/cloudformation"
	"github.com/slipway-k8s/slipway/internal/target/targettest"
)

// template renders a topology's stack. Its bucket and key are those of another account's cluster: no machine reads them.
func template(t *testing.T, x targettest.Topology) string {
	t.Helper()
	body, err := cloudformation.Render(x.StackGraph(t, regiontest.Name), cloudformation.Options{Description: x.Name})
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSpace(body))
}

// upload puts a template that is too long for a request into a bucket: either the body or the URL is set.
func upload(t *testing.T, r regiontest.Region, text string) (body, url *string) {
	t.Helper()
	if len(text) <= cloudformation.MaxBody {
		return &text, nil
	}
	c := s3.NewFromConfig(r.Config(), func(o *s3.Options) { o.UsePathStyle = true })
	if _, err := c.CreateBucket(t.Context(), &s3.CreateBucketInput{Bucket: aws.String("templates")}); err != nil {
		t.Fatal(err)
	}
	_, err := c.PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String("templates"), Key: aws.String("a/t.json"), Body: strings.NewReader(text)})
	if err != nil {
		t.Fatal(err)
	}
	return nil, aws.String("https://templates.s3.us-east-1.amazonaws.com/a/t.json")
}

// settled waits until nothing is under way and returns the stack.
func settled(t *testing.T, c *cfn.Client, name string) types.Stack {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		out, err := c.DescribeStacks(ctx, &cfn.DescribeStacksInput{StackName: &name})
		if err != nil {
			t.Fatal(err)
		}
		st := out.Stacks[0]
		if !strings.HasSuffix(string(st.StackStatus), "_IN_PROGRESS") {
			return st
		}
		select {
		case <-ctx.Done():
			t.Fatalf("stack %s is still %s\n%s", name, st.StackStatus, events(t, c, name))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// events are a stack's events as text, newest first.
func events(t *testing.T, c *cfn.Client, name string) string {
	t.Helper()
	var b strings.Builder
	p := cfn.NewDescribeStackEventsPaginator(c, &cfn.DescribeStackEventsInput{StackName: &name})
	for p.HasMorePages() {
		out, err := p.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range out.StackEvents {
			b.WriteString(string(e.ResourceStatus) + " " + aws.ToString(e.LogicalResourceId) + " " + aws.ToString(e.ResourceStatusReason) + "\n")
		}
	}
	return b.String()
}

// nurse answers for the machines of a stack: every resource that waits gets the signals that it waits for.
func nurse(t *testing.T, c *cfn.Client, name string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			out, err := c.DescribeStackResources(ctx, &cfn.DescribeStackResourcesInput{StackName: &name})
			if err == nil {
				for _, r := range out.StackResources {
					kind := aws.ToString(r.ResourceType)
					if !strings.HasSuffix(string(r.ResourceStatus), "_IN_PROGRESS") || !strings.HasSuffix(kind, "AutoScalingGroup") && !strings.HasSuffix(kind, "WaitCondition") {
						continue
					}
					for _, id := range []string{"i-1", "i-2", "i-3", "i-4", "i-5"} {
						_, _ = c.SignalResource(ctx, &cfn.SignalResourceInput{
							StackName: &name, LogicalResourceId: r.LogicalResourceId, UniqueId: aws.String(id + time.Now().String()), Status: types.ResourceSignalStatusSuccess,
						})
					}
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// TestTopologiesAreMadeAndDeleted leaves out those in a network that exists: test/judge makes that first.
func TestTopologiesAreMadeAndDeleted(t *testing.T) {
	t.Parallel()
	for _, x := range targettest.Topologies() {
		if x.Input(t, regiontest.Name).Cluster.Spec.Networking.NetworkID != "" {
			continue
		}
		t.Run(x.Name, func(t *testing.T) {
			t.Parallel()
			r := regiontest.Start(t)
			c := cfn.NewFromConfig(r.Config())
			name := "demo"
			in := &cfn.CreateStackInput{StackName: &name, Capabilities: []types.Capability{types.CapabilityCapabilityNamedIam}}
			in.TemplateBody, in.TemplateURL = upload(t, r, template(t, x))
			if _, err := c.CreateStack(t.Context(), in); err != nil {
				t.Fatal(err)
			}
			nurse(t, c, name)
			if st := settled(t, c, name); st.StackStatus != types.StackStatusCreateComplete {
				t.Fatalf("%s: %s\n%s", st.StackStatus, aws.ToString(st.StackStatusReason), events(t, c, name))
			}
			if _, err := c.DeleteStack(t.Context(), &cfn.DeleteStackInput{StackName: &name}); err != nil {
				t.Fatal(err)
			}
			out, err := c.ListStacks(t.Context(), &cfn.ListStacksInput{})
			if err != nil {
				t.Fatal(err)
			}
			id := aws.ToString(out.StackSummaries[0].StackId)
			if st := settled(t, c, id); st.StackStatus != types.StackStatusDeleteComplete {
				t.Fatalf("%s: %s\n%s", st.StackStatus, aws.ToString(st.StackStatusReason), events(t, c, id))
			}
		})
	}
}
