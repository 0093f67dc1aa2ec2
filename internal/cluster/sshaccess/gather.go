// SPDX-License-Identifier: Apache-2.0

package sshaccess

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster/inventory"
	"github.com/slipway-k8s/slipway/internal/infra/model"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// probeTimeout limits the attempt to connect to port 22.
const probeTimeout = 2 * time.Second

// Gather reads the facts about one machine of a cluster: the manifests, the bastion's address, which programs are
// installed here, and whether an SSH server of the machine answers; with privateAddress also at its private address.
func Gather(
	ctx context.Context,
	live *inventory.Live,
	machines []inventory.Machine,
	machine inventory.Machine,
	privateAddress bool,
) (Facts, error) {
	spec := live.Manifests.Cluster.Spec
	f := Facts{
		Cluster:         live.Name(),
		Region:          live.Config.Region,
		Machine:         machine,
		User:            loginOfGroup(live.Manifests, machine.Group),
		SessionManager:  spec.MachineAccess.SessionManager,
		InstanceConnect: spec.MachineAccess.InstanceConnectSecurityGroup != "",
		Tools:           installedTools(),
	}

	for _, g := range live.Manifests.Groups {
		if g.Spec.Role == v1alpha1.RoleBastion {
			f.BastionUser = LoginOf(g.Spec.Image)
		}
	}

	var err error
	if f.BastionHost, err = findBastion(ctx, live, machines); err != nil {
		return f, err
	}

	f.OpenAddress = findOpenAddress(ctx, machine, privateAddress)

	return f, nil
}

func loginOfGroup(set manifest.Set, name string) string {
	g, _ := set.Group(name)
	return LoginOf(g.Spec.Image)
}

func installedTools() []string {
	return slices.DeleteFunc(Tools(), func(name string) bool {
		_, err := exec.LookPath(name)
		return err != nil
	})
}

// findBastion returns the address of the bastions: their load balancer, else the public address of one of them; empty if
// there is none.
func findBastion(ctx context.Context, live *inventory.Live, machines []inventory.Machine) (string, error) {
	set := live.Manifests
	if !manifest.HasBastion(set) {
		return "", nil
	}

	if set.Cluster.Spec.Topology.Bastion.LoadBalancer.Type == manifest.LoadBalancerNone {
		for _, m := range machines {
			if m.Role == inventory.RoleBastion && m.State == "running" && m.PublicAddress != "" {
				return m.PublicAddress, nil
			}
		}

		return "", nil
	}

	name := model.BastionBalancerName(live.Name())
	out, err := elb.NewFromConfig(live.Config).DescribeLoadBalancers(
		ctx,
		&elb.DescribeLoadBalancersInput{Names: []string{name}},
	)
	if _, missing := errors.AsType[*elbtypes.LoadBalancerNotFoundException](err); missing {
		return "", nil
	}

	if err != nil {
		return "", fmt.Errorf("find the load balancer %s of the bastions: %w", name, err)
	}

	if len(out.LoadBalancers) == 0 {
		return "", nil
	}

	return aws.ToString(out.LoadBalancers[0].DNSName), nil
}

// findOpenAddress returns the first address of a machine where an SSH server answers; empty if there is none. A private
// address is tried only if the operator asks for it: in another network it may belong to another machine.
func findOpenAddress(ctx context.Context, m inventory.Machine, private bool) string {
	addresses := []string{m.PublicAddress}
	if private {
		addresses = append(addresses, m.PrivateAddress)
	}

	for _, address := range addresses {
		if address != "" && hasSSHServer(ctx, net.JoinHostPort(address, "22")) {
			return address
		}
	}

	return ""
}

// hasSSHServer reports whether an SSH server answers: it sends its version first (RFC 4253, section 4.2).
func hasSSHServer(ctx context.Context, address string) bool {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return false
	}

	defer func() { _ = conn.Close() }() // nothing was sent
	deadline, _ := ctx.Deadline()       // set above
	if err := conn.SetReadDeadline(deadline); err != nil {
		return false
	}

	head := make([]byte, len(sshVersionPrefix))
	_, err = io.ReadFull(conn, head)

	return err == nil && string(head) == sshVersionPrefix
}

const sshVersionPrefix = "SSH-"

// quoteJSON returns s as a JSON string.
func quoteJSON(s string) string {
	text, err := json.Marshal(s)
	if err != nil {
		return `""` // strings can always be encoded
	}

	return string(text)
}
