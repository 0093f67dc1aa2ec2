// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// launchLab is a control-plane machine, its machine store and its EC2.
type launchLab struct {
	EC2API

	t        *testing.T
	agent    *Agent
	stored   []byte
	failure  error
	userData string
	asked    []string // instances whose user data was read
}

func newLaunchLab(t *testing.T) *launchLab {
	t.Helper()
	l := &launchLab{t: t, agent: testAgent(t)}
	a := l.agent
	a.Boot.Document.URL = "s3://bucket/demo/machine/controlplane/documents/control-plane-a.json"
	a.Changing = l
	a.EC2 = l
	l.userData = "boot internal.example 127.77.0.1"
	l.store(1, node.Launch{UserData: "boot @@INTERNAL@@ @@PUBLIC@@", Image: "ami-1"})
	return l
}

func (l *launchLab) ReadIfChanged(_ context.Context, url, etag string) ([]byte, string, error) {
	switch {
	case l.failure != nil:
		return nil, "", l.failure
	case url != "s3://bucket/demo/machine/controlplane/launches.json":
		return nil, "", errors.New("another object: " + url)
	case l.stored == nil:
		return nil, "", fmt.Errorf("get %s: %w", url, store.ErrNotFound)
	case etag == hashOf(l.stored):
		return nil, etag, nil
	}
	return l.stored, hashOf(l.stored), nil
}

func (l *launchLab) DescribeInstances(_ context.Context, in *ec2.DescribeInstancesInput, _ ...func(*ec2.Options)) (*ec2.DescribeInstancesOutput, error) {
	if in.Filters[0].Values[0] != l.agent.instance.ID {
		l.t.Errorf("EC2 is asked for %v", in.Filters)
	}
	own := types.Instance{InstanceId: &l.agent.instance.ID, VpcId: aws.String("vpc-1")}
	return &ec2.DescribeInstancesOutput{Reservations: []types.Reservation{{Instances: []types.Instance{own}}}}, nil
}

func (l *launchLab) DescribeInstanceAttribute(_ context.Context, in *ec2.DescribeInstanceAttributeInput, _ ...func(*ec2.Options)) (*ec2.DescribeInstanceAttributeOutput, error) {
	if in.Attribute != types.InstanceAttributeNameUserData {
		l.t.Errorf("EC2 is asked for %s", in.Attribute)
	}
	l.asked = append(l.asked, *in.InstanceId)
	out := &ec2.DescribeInstanceAttributeOutput{UserData: &types.AttributeValue{}}
	if l.userData != "" {
		out.UserData.Value = aws.String(base64.StdEncoding.EncodeToString([]byte(l.userData)))
	}
	return out, nil
}

// store stores a signed list with the launches of group nodes.
func (l *launchLab) store(serial int64, launches ...node.Launch) {
	l.t.Helper()
	list, _ := node.NewLaunches(node.LaunchesInput{Cluster: "demo", FirstSerial: serial, Current: map[string]node.Pool{"nodes": {}}})
	list.Groups["nodes"] = launches
	l.sign(l.agent.bundle.CAs[pki.KubernetesCA], list)
}

func (l *launchLab) sign(ca pki.CA, list node.Launches) {
	l.t.Helper()
	body, err := list.Sign(ca.Key())
	if err != nil {
		l.t.Fatal(err)
	}
	l.stored = body
}

// newCheck is the check of the agent's next process.
func (l *launchLab) newCheck() *launchCheck { return newLaunchCheck(l.agent, l.agent.ec2Client()) }

// launched is a machine that Karpenter has launched as it should.
func launched() join.Machine {
	return join.Machine{ID: "i-1", Group: "nodes", VPC: "vpc-1", Image: "ami-1", TokensRequired: true}
}

func (l *launchLab) check(what string, m join.Machine, want string) {
	l.t.Helper()
	err := l.newCheck().check(l.t.Context(), m)
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		l.t.Errorf("%s: %v, want %q", what, err, want)
	}
}

// TestOnlyListedLaunchesJoin: a machine that no Auto Scaling group launched joins with the user data and the image of its group,
// now or earlier, in the cluster's VPC, with a safe metadata service, and with nothing else.
func TestOnlyListedLaunchesJoin(t *testing.T) {
	l := newLaunchLab(t)
	l.check("as listed", launched(), "")
	for what, c := range map[string]struct {
		change   func(*join.Machine)
		userData string
		want     string
	}{
		"other user data":          {userData: "boot evil.example 127.77.0.1", want: "other user data"},
		"more user data":           {userData: l.userData + "\n", want: "other user data"},
		"the markers themselves":   {userData: "boot @@INTERNAL@@ @@PUBLIC@@", want: "other user data"},
		"no user data":             {userData: "none", want: "other user data"},
		"another image":            {change: func(m *join.Machine) { m.Image = "ami-2" }, want: "another image"},
		"no image":                 {change: func(m *join.Machine) { m.Image = "" }, want: "another image"},
		"another VPC":              {change: func(m *join.Machine) { m.VPC = "vpc-2" }, want: "not in the cluster's VPC"},
		"an open metadata service": {change: func(m *join.Machine) { m.TokensRequired = false }, want: "does not require tokens"},
		"a group without a list":   {change: func(m *join.Machine) { m.Group = "gpu" }, want: "not launched by the Auto Scaling group gpu.demo"},
	} {
		m, own := launched(), l.userData
		if c.change != nil {
			c.change(&m)
		}
		if c.userData != "" {
			l.userData = strings.TrimPrefix(c.userData, "none")
		}
		l.check(what, m, c.want)
		l.userData = own
	}

	later := node.Launch{UserData: "boot two", Image: "ami-2"}
	l.store(2, later, node.Launch{UserData: "boot @@INTERNAL@@ @@PUBLIC@@", Image: "ami-1"})
	l.check("earlier user data", launched(), "")
	mixed := launched()
	mixed.Image = "ami-2"
	l.check("earlier user data on the new image", mixed, "another image")
	l.store(3, later)
	l.check("user data that has left the list", launched(), "other user data")
	l.store(4, node.Launch{})
	l.userData = ""
	l.check("an empty launch", join.Machine{ID: "i-1", Group: "nodes", VPC: "vpc-1", TokensRequired: true}, "other user data")
}

// TestListOfLaunchesIsSigned: whoever writes to the bucket can neither change the list nor restore an earlier one, also when the
// agent starts again. Without a list, machines of Auto Scaling groups alone join, and EC2 is not asked for user data.
func TestListOfLaunchesIsSigned(t *testing.T) {
	l := newLaunchLab(t)
	first := l.stored
	l.store(5, node.Launch{UserData: "boot two", Image: "ami-1"})
	l.check("the first machine has another user data", launched(), "other user data")
	l.stored = first
	l.check("an earlier list", launched(), "somebody has restored an earlier list")

	l.stored = []byte(`{"launches":"e30="}`)
	l.check("a list without a signature", launched(), "verify the launches")
	forged, _ := node.NewLaunches(node.LaunchesInput{Cluster: "demo", FirstSerial: 9, Current: map[string]node.Pool{"nodes": {Launch: node.Launch{UserData: l.userData, Image: "ami-1"}}}})
	l.sign(testAgent(t).bundle.CAs[pki.KubernetesCA], forged)
	l.check("a list of another authority", launched(), "verify the launches")
	forged.Cluster = "prod"
	l.sign(l.agent.bundle.CAs[pki.KubernetesCA], forged)
	l.check("a list of another cluster", launched(), "want cluster demo")

	l.asked = nil
	l.stored = nil
	l.check("no list", launched(), "not launched by the Auto Scaling group nodes.demo")
	l.agent.Boot.Document.URL = "https://example.com/document.json"
	l.check("a document from elsewhere", launched(), "not launched by the Auto Scaling group nodes.demo")
	l.agent.Boot.Document.URL = "s3://bucket/demo/machine/controlplane/documents/control-plane-a.json"
	l.failure = errors.New("timeout")
	l.check("S3 fails", launched(), "timeout")
	if len(l.asked) > 0 {
		t.Errorf("EC2 was asked for the user data of %v", l.asked)
	}
}

// TestListOfLaunchesIsReadOnce: an unchanged list is not verified again, and a list that has gone admits nothing.
func TestListOfLaunchesIsReadOnce(t *testing.T) {
	l := newLaunchLab(t)
	c := l.newCheck()
	for range 2 {
		if err := c.check(t.Context(), launched()); err != nil {
			t.Fatal(err)
		}
	}
	l.stored = nil
	if err := c.check(t.Context(), launched()); err == nil {
		t.Error("a list that has gone admits machines")
	}
}
