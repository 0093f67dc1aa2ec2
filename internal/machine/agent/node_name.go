// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"

	"github.com/slipway-k8s/slipway/internal/machine/join"
)

// nodeNameFile holds the name of this machine's node, so that a restart needs no answer of EC2. It is on the root disk.
const nodeNameFile = "/var/lib/slipway/node-name.json"

// nodeName is what nodeNameFile holds. The name is that of the instance in EC2, its private DNS name: other machines know
// a node by it. The host name in the instance's metadata is another one in a VPC whose DHCP options have a domain name.
type nodeName struct {
	// Instance is the id of the instance: the disk can be a copy of another one's.
	Instance string `json:"instance"`
	// Hostname is the instance's host name at that time. A machine that has another one now may have been renamed.
	Hostname string `json:"hostname"`
	// Name of the node.
	Name string `json:"name"`
}

// readNodeName returns the stored name of this machine; false if there is none.
func readNodeName(a *Agent) (nodeName, bool) {
	if !a.Root.Exists(nodeNameFile) {
		return nodeName{}, false
	}

	var n nodeName
	body, err := a.Root.Read(nodeNameFile)
	if err == nil {
		err = json.Unmarshal(body, &n)
	}

	if err != nil {
		a.Log.Warn("cannot read the name of this machine's node; asking for it again", slog.Any("error", err))
		return nodeName{}, false
	}

	return n, n.Instance == a.instance.ID && n.Name != ""
}

// setNodeName stores the name of this machine's node, and from then on the agent has it. It is called only while the
// machine converges, when no task runs that reads the name.
func setNodeName(a *Agent, name string) error {
	n := nodeName{Instance: a.instance.ID, Hostname: a.instance.Hostname, Name: name}
	body, err := json.Marshal(n)
	if err != nil {
		return fmt.Errorf("encode %s: %w", nodeNameFile, err)
	}

	if _, err := a.Root.Write(File{
		Path:    nodeNameFile,
		Body:    append(body, '\n'),
		Mode:    0o600,
		Durable: true,
	}); err != nil {
		return err
	}

	a.instance.Name = name

	return nil
}

// takeNodeName gives a control-plane machine the name that it has in EC2. It asks once: a restart takes the stored name.
func takeNodeName(ctx context.Context, a *Agent) error {
	stored, known := readNodeName(a)
	if known && stored.Hostname == a.instance.Hostname {
		return setNodeName(a, stored.Name)
	}

	return a.retryUntilReady(ctx, "name", func() error {
		name, err := askEC2ForName(ctx, a)
		if err != nil && known {
			a.Log.Warn("cannot ask EC2 for the name of this machine; keeping the stored one", slog.Any("error", err))
			a.instance.Name = stored.Name // not stored again, so that the next start asks

			return nil
		}

		if err != nil {
			return err
		}

		return setNodeName(a, name)
	})
}

// askEC2ForName returns the private DNS name of this machine in EC2. EC2 lists a new instance, and tells its name, some
// time after the instance has started.
func askEC2ForName(ctx context.Context, a *Agent) (string, error) {
	m, found, err := a.ec2Client().FindMachine(ctx, a.instance.ID)
	switch {
	case err != nil:
		return "", err
	case !found:
		return "", newNotReadyError("EC2 does not list this instance, %s, as a machine of the cluster", a.instance.ID)
	case m.Name == "":
		return "", newNotReadyError("EC2 does not tell the private DNS name of this instance, %s", a.instance.ID)
	}

	return strings.ToLower(m.Name), nil
}

// joinCluster gives a worker its name and certificates: the stored ones, or those that the join endpoint answers.
func (a *Agent) joinCluster(ctx context.Context) error {
	if stored, known := readNodeName(a); known {
		a.instance.Name = stored.Name
	}

	// Without a name, no certificates are those of this machine.
	if isDue, err := adoptNodeCertificates(a); err != nil || !isDue {
		return err
	}

	got, err := a.newJoinClient().Join(ctx)
	if err != nil {
		return err
	}

	if err := setNodeName(a, got.Name); err != nil {
		return err
	}

	return writeNodeCertificates(a, got)
}

// renewNodeCertificates requests certificates from the join endpoint if they are due.
func (a *Agent) renewNodeCertificates(ctx context.Context) error {
	if isDue, err := adoptNodeCertificates(a); err != nil || !isDue {
		return err
	}

	got, err := a.newJoinClient().Join(ctx)
	if err != nil {
		return err
	}

	if got.Name != a.instance.Name {
		return newRenamedError(a.instance, got)
	}

	return writeNodeCertificates(a, got)
}

// newRenamedError returns the error for a machine that got another name while its kubelet runs.
func newRenamedError(me Instance, got join.NodeCredentials) error {
	return fmt.Errorf(
		"EC2 names this machine, %s, %s, and its node has the name %s; terminate it so that it is replaced",
		me.ID,
		got.Name,
		me.Name,
	)
}
