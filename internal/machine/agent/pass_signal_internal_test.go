// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	astypes "github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// taggedGroups are Auto Scaling groups with tags; no other operation is called.
type taggedGroups struct {
	RepairAPI
	tags map[string]map[string]string // by group
}

func (g taggedGroups) DescribeAutoScalingGroups(_ context.Context, in *autoscaling.DescribeAutoScalingGroupsInput, _ ...func(*autoscaling.Options)) (*autoscaling.DescribeAutoScalingGroupsOutput, error) {
	out := &autoscaling.DescribeAutoScalingGroupsOutput{}
	for _, name := range in.AutoScalingGroupNames {
		group := astypes.AutoScalingGroup{AutoScalingGroupName: aws.String(name)}
		for k, v := range g.tags[name] {
			group.Tags = append(group.Tags, astypes.TagDescription{Key: aws.String(k), Value: aws.String(v)})
		}
		out.AutoScalingGroups = append(out.AutoScalingGroups, group)
	}
	return out, nil
}

// TestWorkersSignalThroughTheControlPlane: a worker's success counts only if its Node is Ready, and for its own group.
func TestWorkersSignalThroughTheControlPlane(t *testing.T) {
	ready := "False"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/api/v1/nodes/ip-10-0-0-9" {
			http.NotFound(w, r)
			return
		}
		_, _ = io.WriteString(w, `{"status":{"conditions":[{"type":"Ready","status":"`+ready+`","message":"no network"}]}}`)
	}))
	defer server.Close()
	api := kube.Client{Server: server.URL, HTTP: server.Client()}

	s := &stack{}
	a, _ := inStack(t, s)
	of := func(name, id string) map[string]string {
		return map[string]string{tagStackName: name, tagLogicalID: id}
	}
	a.Scaling = taggedGroups{tags: map[string]map[string]string{"workers.demo": of("demo", "Workers"), "other.demo": of("demo-2", "Other"), "bare.demo": {}}}
	pass := func(group, name string, status join.Signal) error {
		return stackSignals{a}.passSignal(t.Context(), api, join.Machine{ID: "i-9", Name: name, ScalingGroup: group}, status)
	}

	for _, c := range []struct{ group, node, ready, want string }{
		{"workers.demo", "ip-10-0-0-9", "False", "not Ready: no network"},
		{"workers.demo", "ip-10-0-0-8", "True", "404"},
		{"other.demo", "ip-10-0-0-9", "True", "is not in stack demo"},
		{"bare.demo", "ip-10-0-0-9", "True", "is not in stack demo"},
	} {
		ready = c.ready
		if err := pass(c.group, c.node, join.SignalSuccess); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if len(s.got) > 0 {
		t.Errorf("signalled %s", s.got)
	}

	ready = "True"
	if err := pass("workers.demo", "ip-10-0-0-9", join.SignalSuccess); err != nil {
		t.Error(err)
	}
	ready = "False"
	if err := pass("workers.demo", "ip-10-0-0-9", join.SignalFailure); err != nil { // a machine may give up
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"demo Workers i-9 SUCCESS", "demo Workers i-9 FAILURE"}, s.got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s.answers = []error{errors.New("no route to host")}
	if err := pass("workers.demo", "ip-10-0-0-9", join.SignalFailure); err == nil {
		t.Error("an error of CloudFormation is lost")
	}
	a.Boot.StackName = ""
	if err := pass("bare.demo", "ip-10-0-0-9", join.SignalFailure); err == nil {
		t.Error("signalled without a stack")
	}
}
