// SPDX-License-Identifier: Apache-2.0

package server_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	awsiam "github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/slipway-k8s/slipway/internal/region/fault"
	"github.com/slipway-k8s/slipway/internal/region/server"
)

// TestEffects applies each effect to the creation of a user and checks whether the user exists
// afterwards.
func TestEffects(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		rule   fault.Rule
		want   string // part of the error's code or text; empty: no error
		exists bool
		kills  int32
	}{
		{fault.Rule{Effect: fault.EffectFail}, "InternalError", false, 0},
		{fault.Rule{Effect: fault.EffectFail, Code: "LimitExceeded"}, "LimitExceeded", false, 0},
		{fault.Rule{Effect: fault.EffectThrottle}, "Throttling", false, 0},
		{fault.Rule{Effect: fault.EffectDelay, Delay: fault.Duration(50 * time.Millisecond)}, "", true, 0},
		{fault.Rule{Effect: fault.EffectDropAnswer}, "EOF", true, 0},
		{fault.Rule{Effect: fault.EffectClose}, "EOF", false, 0},
		{fault.Rule{Effect: fault.EffectKill}, "EOF", false, 1},
		{fault.Rule{Effect: fault.EffectKillAfter}, "EOF", true, 1},
	} {
		name := string(tc.rule.Effect) + tc.rule.Code
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var kills atomic.Int32
			faults := &fault.Engine{}
			r := startWith(t, server.Config{Faults: faults, KillClient: func(*http.Request) error { kills.Add(1); return nil }})
			tc.rule.Service, tc.rule.Action, tc.rule.Nth = "iam", "CreateUser", 2
			if _, err := faults.AddRule(tc.rule); err != nil {
				t.Fatal(err)
			}
			api, ctx := r.iamClient(root()), t.Context()
			if _, err := api.CreateUser(ctx, &awsiam.CreateUserInput{UserName: new("first")}); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			_, err := api.CreateUser(ctx, &awsiam.CreateUserInput{UserName: new("second")})
			if got := code(err); tc.want == "" && err != nil || !strings.Contains(got, tc.want) {
				t.Errorf("the answer is %q, want %q", got, tc.want)
			}
			if took := time.Since(begin); took < time.Duration(tc.rule.Delay) {
				t.Errorf("it took %v, less than the delay", took)
			}
			if kills.Load() != tc.kills {
				t.Errorf("%d callers were killed, want %d", kills.Load(), tc.kills)
			}
			if _, err := api.GetUser(ctx, &awsiam.GetUserInput{UserName: new("second")}); (err == nil) != tc.exists {
				t.Errorf("it took effect: %v, want %v", err == nil, tc.exists)
			}
			if _, err := api.CreateUser(ctx, &awsiam.CreateUserInput{UserName: new("third")}); err != nil {
				t.Errorf("the next call: %v", err)
			}
		})
	}
}

// TestThrottlingOfEachProtocol checks that SDK clients recognise injected throttling.
func TestThrottlingOfEachProtocol(t *testing.T) {
	t.Parallel()
	faults := &fault.Engine{}
	r := startWith(t, server.Config{Faults: faults})
	if _, err := faults.AddRule(fault.Rule{Effect: fault.EffectThrottle, Count: -1}); err != nil {
		t.Fatal(err)
	}
	_, err := r.ec2Client(root()).AttachVolume(t.Context(), &ec2.AttachVolumeInput{VolumeId: new("v"), InstanceId: new("i"), Device: new("d")})
	if code(err) != "RequestLimitExceeded" {
		t.Errorf("EC2: %v", err)
	}
	if _, err := r.iamClient(root()).ListRoles(t.Context(), &awsiam.ListRolesInput{}); code(err) != "Throttling" {
		t.Errorf("IAM: %v", err)
	}
}

func TestMutates(t *testing.T) {
	t.Parallel()
	for op, want := range map[string]bool{
		"DescribeVpcs": false, "GetObject": false, "ListRoles": false, "HeadBucket": false, "Decrypt": false, "GenerateDataKey": false,
		"SimulatePrincipalPolicy": false, "AssumeRole": false, "CreateVpc": true, "PutObject": true, "RunInstances": true, "EnableKeyRotation": true,
	} {
		if got := server.IsMutating(op); got != want {
			t.Errorf("%s changes something: %v", op, got)
		}
	}
}
