// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// launchCheck decides whether a machine may join that no Auto Scaling group launched: if the signed
// list of its group has its user data and image, it runs this cluster's agent, whoever launched it
// (docs/design/0028-karpenter.md). It may be used concurrently.
type launchCheck struct {
	machines EC2Client
	api      node.APIEndpoints
	self     string // this machine's instance id

	mu   sync.Mutex
	list *launchList
	vpc  string // this machine's VPC
}

// newLaunchCheck returns the check of an agent with its document of now.
func newLaunchCheck(a *Agent, machines EC2Client) *launchCheck {
	return &launchCheck{
		machines: machines,
		api:      a.Boot.API,
		self:     a.instance.ID,
		list:     newLaunchList(a),
	}
}

// check returns an error that tells the machine why it may not join.
func (c *launchCheck) check(ctx context.Context, m join.Machine) error {
	launches, vpc, err := c.findLaunches(ctx, m.Group)
	switch {
	case err != nil:
		return err
	case len(launches) == 0:
		return join.NewNotLaunchedError(c.list.cluster, m)
	case m.VPC != vpc:
		return join.Forbid("instance " + m.ID + " is not in the cluster's VPC")
	case !m.TokensRequired:
		return join.Forbid("the metadata service of instance " + m.ID + " does not require tokens")
	}

	userData, err := c.machines.ReadUserData(ctx, m.ID)
	if err != nil {
		return err
	}

	if !slices.ContainsFunc(launches, func(l node.Launch) bool { return c.matches(l, m, userData) }) {
		return join.Forbid("instance " + m.ID + " has other user data or another image than group " + m.Group)
	}

	return nil
}

// findLaunches returns the launches of a group, and the VPC of its machines.
func (c *launchCheck) findLaunches(ctx context.Context, group string) ([]node.Launch, string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	list, err := c.list.read(ctx)
	if err != nil {
		return nil, "", err
	}

	launches := list.Groups[group]
	if len(launches) == 0 {
		return nil, "", nil
	}

	vpc, err := c.ownVPC(ctx)

	return launches, vpc, err
}

// matches reports whether a machine with user data has a launch.
func (c *launchCheck) matches(l node.Launch, m join.Machine, userData string) bool {
	want, ok := l.FillUserData(c.api)

	return ok && l.Image != "" && l.Image == m.Image && want != "" && want == userData
}

// ownVPC returns the id of this machine's VPC.
func (c *launchCheck) ownVPC(ctx context.Context) (string, error) {
	if c.vpc != "" {
		return c.vpc, nil
	}

	m, found, err := c.machines.FindMachine(ctx, c.self)
	if err != nil {
		return "", err
	}

	if !found || m.VPC == "" {
		return "", fmt.Errorf("find the VPC of this machine: EC2 does not know %s", c.self)
	}

	c.vpc = m.VPC

	return c.vpc, nil
}

// ReadUserData returns the user data of an instance.
func (c EC2Client) ReadUserData(ctx context.Context, id string) (string, error) {
	out, err := c.EC2.DescribeInstanceAttribute(ctx, &ec2.DescribeInstanceAttributeInput{
		InstanceId: &id,
		Attribute:  types.InstanceAttributeNameUserData,
	})
	if err != nil {
		return "", fmt.Errorf("read the user data of %s: %w", id, err)
	}

	if out.UserData == nil {
		return "", nil
	}

	text, err := base64.StdEncoding.DecodeString(aws.ToString(out.UserData.Value))
	if err != nil {
		return "", fmt.Errorf("decode the user data of %s: %w", id, err)
	}

	return string(text), nil
}

// joinMachine returns a machine as the join endpoint knows it.
func joinMachine(m Machine) join.Machine {
	return join.Machine{
		ID:             m.ID,
		Account:        m.Account,
		Name:           m.Name,
		Address:        m.Address,
		State:          m.State,
		Role:           m.Role,
		Group:          m.Group,
		ScalingGroup:   m.ScalingGroup,
		VPC:            m.VPC,
		Image:          m.Image,
		TokensRequired: m.TokensRequired,
	}
}
