// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/infra/plan"
)

func TestErrorClasses(t *testing.T) {
	for code, want := range map[string]plan.ErrorClass{
		"RequestLimitExceeded": plan.Throttled, "Throttling": plan.Throttled, "ThrottlingException": plan.Throttled,
		"InvalidVpcID.NotFound": plan.NotFound, "NoSuchEntity": plan.NotFound, "LoadBalancerNotFound": plan.NotFound, "NotFoundException": plan.NotFound, "NoSuchHostedZone": plan.NotFound, "InvalidVPCId": plan.NotFound,
		"InvalidPermission.Duplicate": plan.AlreadyExists, "EntityAlreadyExists": plan.AlreadyExists, "InvalidLaunchTemplateName.AlreadyExistsException": plan.AlreadyExists,
		"DependencyViolation": plan.InUse, "VolumeInUse": plan.InUse, "ResourceInUse": plan.InUse, "DeleteConflict": plan.InUse,
		"UnauthorizedOperation": plan.AccessDenied, "AccessDenied": plan.AccessDenied, "AccessDeniedException": plan.AccessDenied,
		"AddressLimitExceeded": plan.LimitExceeded, "VpcLimitExceeded": plan.LimitExceeded, "TooManyTargetGroups": plan.LimitExceeded,
		"VolumeModificationRateExceeded": plan.LimitExceeded, // four times a day
		"LimitExceededException":         plan.LimitExceeded, // a used up quota of KMS, which the SDK retries as throttling
		"InvalidStateTransition":         plan.NotReady,      // of a VPC peering whose request EC2 has not processed yet
		"IncorrectState":                 plan.NotReady, "InvalidParameterValue": plan.Unclassified, "MalformedPolicyDocument": plan.Unclassified,
	} {
		err := Wrap(&smithy.GenericAPIError{Code: code, Message: "m"}, "create vpc")
		if got := plan.ErrorClassOf(fmt.Errorf("create vpc/main: %w", err)); got != want {
			t.Errorf("%s: class %q, want %q", code, got, want)
		}
		if got := err.Error(); got != "create vpc: "+code+": m" {
			t.Errorf("%s: %q", code, got)
		}
	}
	late := &smithy.GenericAPIError{Code: "ValidationError", Message: "Invalid IamInstanceProfile: Invalid IAM Instance Profile name"}
	if got := plan.ErrorClassOf(Wrap(late, "create")); got != plan.NotReady {
		t.Errorf("a new instance profile that EC2 does not see has class %q", got)
	}
	for _, message := range []string{
		"You must use a valid fully-formed launch template. The specified launch template, with template ID lt-1, does not exist.",
		"You must use a valid fully-formed launch template. The launch template version 2 is not found for the specified launch template.",
		"Provided Target Groups may not be valid. Please ensure they exist and try again.",
		"AutoScalingGroup name not found - AutoScalingGroup 'nodes' not found",
		"The subnet ID 'subnet-1' does not exist",
	} {
		young := &smithy.GenericAPIError{Code: "ValidationError", Message: message}
		if got := classifyRetry(ExpectPropagation(t.Context()), "UpdateAutoScalingGroup", nil, young); got != retryNotPropagated {
			t.Errorf("what Auto Scaling does not see: %s: %q", message, got)
		}
	}
	group := &smithy.GenericAPIError{Code: "InvalidSecurityGroup", Message: "The security group 'sg-1' does not exist"}
	if got := classifyRetry(ExpectPropagation(t.Context()), "CreateLoadBalancer", nil, group); got != retryNotPropagated {
		t.Errorf("a security group that Elastic Load Balancing does not see: %q", got)
	}
	if Wrap(nil, "x") != nil {
		t.Error("Wrap(nil) is not nil")
	}
}

// TestFunctionErrors: the codes of Lambda have several meanings, which its messages tell apart.
func TestFunctionErrors(t *testing.T) {
	for _, c := range []struct {
		code, message string
		want          plan.ErrorClass
	}{
		{"InvalidParameterValueException", "The role defined for the function cannot be assumed by Lambda.", plan.NotReady},
		{"InvalidParameterValueException", "'Timeout' value failed to satisfy constraint", plan.Unclassified},
		{"ResourceConflictException", "The operation cannot be performed at this time. An update is in progress for resource: arn", plan.NotReady},
		{"ResourceConflictException", "Function already exist: f", plan.Unclassified},
		{"ResourceNotFoundException", "Function not found: arn", plan.NotFound},
		{"ConcurrentModificationException", "m", plan.NotReady},
		{"OperationAbortedException", "m", plan.NotReady},
	} {
		err := Wrap(&smithy.GenericAPIError{Code: c.code, Message: c.message}, "create function f")
		if got := plan.ErrorClassOf(err); got != c.want {
			t.Errorf("%s: %s: class %q, want %q", c.code, c.message, got, c.want)
		}
	}
}

// brokenConnections is an HTTP client whose first connections break.
type brokenConnections struct {
	broken int32
	tries  atomic.Int32
}

func (w *brokenConnections) Do(*http.Request) (*http.Response, error) {
	if w.tries.Add(1) <= w.broken {
		return nil, errors.New("connection reset by peer")
	}
	body := `<DescribeVpcsResponse><vpcSet/></DescribeVpcsResponse>`
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(body))}, nil
}

func TestOnlyReadsAreRepeatedWhenAConnectionBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := func(broken int32) (*brokenConnections, *ec2.Client) {
			w := &brokenConnections{broken: broken}
			cfg := (&CallLimiter{}).PaceCalls(sdk.Config{Region: "us-east-1", HTTPClient: w, Credentials: credentials.NewStaticCredentialsProvider("a", "b", "")})
			return w, ec2.NewFromConfig(cfg)
		}
		w, api := client(2)
		if _, err := api.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{}); err != nil || w.tries.Load() != 3 {
			t.Errorf("a read: %d attempts, %v", w.tries.Load(), err)
		}
		w, api = client(100)
		if _, err := api.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{}); err == nil || w.tries.Load() != maxTransientAttempts {
			t.Errorf("a read that never succeeds: %d attempts, %v", w.tries.Load(), err)
		}
		w, api = client(1)
		if _, err := api.CreateVpc(t.Context(), &ec2.CreateVpcInput{CidrBlock: sdk.String("10.0.0.0/16")}); err == nil || w.tries.Load() != 1 {
			t.Errorf("a change whose response is lost: %d attempts, want 1: %v", w.tries.Load(), err)
		}
	})
}

func TestWaitsShareCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		var asked [][]string
		b := &StatePoller[time.Duration]{Describe: func(_ context.Context, ids []string) (map[string]time.Duration, error) {
			asked = append(asked, ids)
			out := map[string]time.Duration{}
			for _, id := range ids {
				if id != "gone" {
					out[id] = time.Since(start)
				}
			}
			return out, nil
		}}
		done := make(chan error, 3)
		for _, id := range []string{"a", "b"} {
			go func() {
				done <- b.WaitUntil(t.Context(), id, func(age time.Duration, _ bool) (bool, error) { return age > 20*time.Second, nil })
			}()
		}
		go func() {
			done <- b.WaitUntil(t.Context(), "gone", func(_ time.Duration, found bool) (bool, error) { return !found, nil })
		}()
		for range 3 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if len(asked) > 14 {
			t.Errorf("%d calls in 20 s", len(asked))
		}
		for _, ids := range asked[1:] {
			if diff := cmp.Diff([]string{"a", "b"}, ids); diff != "" {
				t.Errorf("two waits share each call (-want +got): %s", diff)
			}
		}
		time.Sleep(10 * time.Second) // polling stops with the last wait
	})
}

// TestDescribedIDsAreFew: AWS refuses a call that names more than 100 groups, so the deletion of 250 failed.
func TestDescribedIDsAreFew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waits = 2*MaxDescribedIDs + 50
		var asked []int
		p := &StatePoller[string]{Describe: func(_ context.Context, ids []string) (map[string]string, error) {
			asked = append(asked, len(ids))
			out := map[string]string{}
			for _, id := range ids {
				out[id] = "state of " + id
			}
			return out, nil
		}}
		done := make(chan error, waits)
		for n := range waits {
			id := strconv.Itoa(n)
			go func() {
				done <- p.WaitUntil(t.Context(), id, func(state string, _ bool) (bool, error) { return state == "state of "+id, nil })
			}()
		}
		for range waits {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff([]int{MaxDescribedIDs, MaxDescribedIDs, 50}, asked); diff != "" {
			t.Errorf("ids of each call (-want +got):\n%s", diff)
		}
	})
}

// TestPollingStopsWithItsWaiters checks that a poller makes no call for a wait that was cancelled.
func TestPollingStopsWithItsWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		p := &StatePoller[string]{Describe: func(context.Context, []string) (map[string]string, error) {
			calls.Add(1)
			return map[string]string{"a": "pending"}, nil
		}}
		wait := func(ctx context.Context) error {
			return p.WaitUntil(ctx, "a", func(string, bool) (bool, error) { return false, nil })
		}

		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a wait that was cancelled: %v", err)
		}

		before := calls.Load()
		time.Sleep(20 * time.Second)
		if after := calls.Load(); after != before {
			t.Errorf("%d calls although nothing waits", after-before)
		}

		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_ = wait(ctx)
		if calls.Load() == before {
			t.Error("a later wait made no call")
		}
	})
}

// TestWaitIsCancelledDuringARound cancels a wait while Describe runs: the poller has taken the waits of the round, so none
// is left to remove.
func TestWaitIsCancelledDuringARound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		release := make(chan struct{})
		p := &StatePoller[string]{Describe: func(context.Context, []string) (map[string]string, error) {
			cancel()
			<-release

			return map[string]string{}, nil
		}}

		err := p.WaitUntil(ctx, "vpc-1", func(string, bool) (bool, error) { return false, nil })
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want the cancellation", err)
		}

		close(release)
	})
}
