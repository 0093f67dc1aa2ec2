// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/machine/node"
	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// fakeTemplates has launch templates by version and counts the calls.
type fakeTemplates struct {
	byVersion map[string]types.ResponseLaunchTemplateData
	calls     int
}

func (f *fakeTemplates) DescribeLaunchTemplateVersions(
	_ context.Context,
	in *ec2.DescribeLaunchTemplateVersionsInput,
	_ ...func(*ec2.Options),
) (*ec2.DescribeLaunchTemplateVersionsOutput, error) {
	f.calls++
	out := &ec2.DescribeLaunchTemplateVersionsOutput{}
	for _, v := range in.Versions {
		data, ok := f.byVersion[v]
		if !ok {
			continue
		}
		var number int64
		if _, err := fmt.Sscan(v, &number); err != nil {
			return nil, err
		}
		out.LaunchTemplateVersions = append(out.LaunchTemplateVersions, types.LaunchTemplateVersion{
			VersionNumber: &number, LaunchTemplateData: &data,
		})
	}
	return out, nil
}

func templateWith(t *testing.T, document, agent string, machineType types.InstanceType) types.ResponseLaunchTemplateData {
	t.Helper()
	config, err := json.Marshal(node.BootConfig{
		Cluster: "demo", Group: "workers", Agent: node.Download{URL: "s3://b/agent", SHA256: agent},
		Document: node.Download{URL: "s3://b/workers-" + document + ".json", SHA256: document},
	})
	if err != nil {
		t.Fatal(err)
	}
	script := strings.Replace(node.BootScript("us-east-1"), node.ConfigPlaceholder, string(config), 1)
	return types.ResponseLaunchTemplateData{
		UserData: aws.String(base64.StdEncoding.EncodeToString([]byte(script))), InstanceType: machineType,
	}
}

// TestMachinesThatFollow: a machine with an older launch template is up to date if the templates differ only in a node
// document that its agent has applied.
func TestMachinesThatFollow(t *testing.T) {
	a := strings.Repeat("a", 64)
	b := strings.Repeat("b", 64)
	api := &fakeTemplates{byVersion: map[string]types.ResponseLaunchTemplateData{
		"1": templateWith(t, a, "agent1", "t3.large"),
		"2": templateWith(t, a, "agent2", "t3.large"),
		"3": templateWith(t, b, "agent2", "t3.xlarge"),
		"4": templateWith(t, b, "agent2", "t3.large"),
	}}
	r := newTemplateReader(api)
	group := rollout.Group{Name: "workers", Size: 1, Version: "4"}
	want := map[string]bool{"1": false, "2": true, "3": false, "4": true, "9": false}
	for range 2 {
		var machines []rollout.Machine
		for _, v := range []string{"1", "2", "3", "4", "9"} {
			machines = append(machines, rollout.Machine{ID: "i-" + v, Group: "workers", Version: v})
		}
		if err := r.addDocuments(t.Context(), "lt-1", &group, machines); err != nil {
			t.Fatal(err)
		}
		for _, m := range machines {
			if m.DiffersInDocument != want[m.Version] {
				t.Errorf("version %s: %v", m.Version, m.DiffersInDocument)
			}
		}
	}
	if api.calls != 1 || group.Document != b {
		t.Errorf("%d calls, document %s", api.calls, group.Document)
	}
	for name, c := range map[string]struct {
		revision report.Revision
		machine  string
		planned  string // the reason; empty: up to date
	}{
		"followed":            {report.Revision{State: report.RevisionCurrent, Followed: b}, "i-2", ""},
		"not yet":             {report.Revision{State: report.RevisionWaiting, Followed: a}, "i-2", "its launch template is version 2, the group's is 4"},
		"refused":             {report.Revision{State: report.RevisionRefused, Followed: a}, "i-2", "its launch template is version 2, the group's is 4"},
		"of a former machine": {report.Revision{State: report.RevisionCurrent, Followed: b}, "i-0", "its launch template is version 2, the group's is 4"},
		"pending": {
			report.Revision{State: report.RevisionPending, Followed: b, Pending: []string{"taints"}},
			"i-2",
			"its new node document needs a new machine: taints",
		},
	} {
		body, err := json.Marshal(report.Report{Machine: c.machine, Revision: c.revision})
		if err != nil {
			t.Fatal(err)
		}
		m := rollout.Machine{ID: "i-2", Group: "workers", Version: "2", State: rollout.StateRunning, NodeReady: true, DiffersInDocument: true}
		n := corev1.Node{}
		n.Annotations = map[string]string{report.Annotation: string(body)}
		addRevision(&m, n, b)
		plan := rollout.Plan(rollout.Observation{Groups: []rollout.Group{group}, Machines: []rollout.Machine{m}}, rollout.Options{})
		reason := ""
		if len(plan) > 0 {
			reason = plan[0].Reason
		}
		if reason != c.planned {
			t.Errorf("%s: replaced because %q, want %q", name, reason, c.planned)
		}
	}
}
