// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/join"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// launchSerialFile has the highest serial of the launches that this machine has seen.
const launchSerialFile = "/var/lib/slipway/launches-serial"

// launchCheck decides whether a machine may join that no Auto Scaling group launched: if the signed list of its group has its
// user data and image, it runs this cluster's agent, whoever launched it (docs/design/0028-karpenter.md). It may be used
// concurrently.
type launchCheck struct {
	cluster  string
	ca       string // certificates of the Kubernetes CA, PEM
	url      string // of the list; empty if there is none
	changing ChangingReader
	machines EC2Client
	api      node.APIEndpoints
	self     string // this machine's instance id
	root     *HostFS

	mu   sync.Mutex
	etag string
	list node.Launches
	vpc  string // this machine's VPC
}

// newLaunchCheck returns the check of an agent with its document of now.
func newLaunchCheck(a *Agent, machines EC2Client) *launchCheck {
	url, err := node.SiblingURL(a.Boot.Document.URL, a.doc.Cluster, node.LaunchesKey(a.doc.Cluster))
	if err != nil || a.Changing == nil {
		url = "" // a document from elsewhere has no list
	}

	return &launchCheck{
		cluster:  a.doc.Cluster,
		ca:       a.doc.Trust.KubernetesCA,
		url:      url,
		changing: a.Changing,
		machines: machines,
		api:      a.Boot.API,
		self:     a.instance.ID,
		root:     a.Root,
	}
}

// check returns an error that tells the machine why it may not join.
func (c *launchCheck) check(ctx context.Context, m join.Machine) error {
	launches, vpc, err := c.findLaunches(ctx, m.Group)
	switch {
	case err != nil:
		return err
	case len(launches) == 0:
		return join.NewNotLaunchedError(c.cluster, m)
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
	if err := c.readList(ctx); err != nil {
		return nil, "", err
	}

	launches := c.list.Groups[group]
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

// readList reads and verifies the list if it has changed. Without a list no group has launches.
func (c *launchCheck) readList(ctx context.Context) error {
	if c.url == "" {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, revisionTimeout)
	defer cancel()
	body, etag, err := c.changing.ReadIfChanged(ctx, c.url, c.etag)
	if errors.Is(err, store.ErrNotFound) {
		c.etag = ""
		c.list = node.Launches{}

		return nil
	}

	if err != nil || body == nil {
		return err
	}

	list, err := node.VerifyLaunches(body, c.ca, c.cluster)
	if err != nil {
		return err
	}

	if err := c.keepSerial(list.Serial); err != nil {
		return err
	}

	c.etag = etag
	c.list = list

	return nil
}

// keepSerial fails if this machine has seen a list with a higher serial: somebody has restored an earlier one.
func (c *launchCheck) keepSerial(serial int64) error {
	seen := int64(0)
	if c.root.Exists(launchSerialFile) {
		text, err := c.root.Read(launchSerialFile)
		if err != nil {
			return err
		}

		if seen, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err != nil {
			return fmt.Errorf("parse %s: %w", launchSerialFile, err)
		}
	}

	if serial < seen {
		return fmt.Errorf("%s has serial %d, but this machine has seen %d: somebody has restored an earlier list",
			c.url, serial, seen)
	}

	if serial == seen {
		return nil
	}

	_, err := c.root.Write(File{
		Path:    launchSerialFile,
		Body:    []byte(strconv.FormatInt(serial, 10) + "\n"),
		Mode:    0o600,
		Durable: true,
	})

	return err
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
