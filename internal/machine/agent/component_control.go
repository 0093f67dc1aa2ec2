// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// machineControl is the componentControl of a real machine.
type machineControl struct {
	// from has the document before the change, and to the one after it.
	from, to *Agent
	// before are the ids of the processes of static pods before the change.
	before map[string]int
	// commands are the command lines of static pods after the change.
	commands map[string][]string
	// units are the restarted units by name.
	units map[string]*restartedUnit
	http  *http.Client
}

// newMachineControl returns the control of a machine that is about to change.
func newMachineControl(from, to *Agent) componentControl {
	c := machineControl{
		from:     from,
		to:       to,
		before:   map[string]int{},
		commands: podCommands(to),
		units:    map[string]*restartedUnit{},
	}
	for pod, command := range podCommands(from) {
		if p, found := findProcess(from.Root, command); found {
			c.before[pod] = p.pid
		}
	}

	c.http = &http.Client{
		Timeout: healthCheckTimeout,
		Transport: &http.Transport{
			// As the kubelet's probes: the certificates of these components are for nobody else.
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13}, //nolint:gosec // loopback
			DisableKeepAlives: true,
		},
	}

	return c
}

// podCommands returns the command lines of an agent's static pods by name.
func podCommands(a *Agent) map[string][]string {
	c := a.kubeConfig()
	c.EtcdURL = etcd.ClientURL

	return kube.StaticPodCommands(c)
}

// Restart implements componentControl.
func (c machineControl) Restart(ctx context.Context, component string, changed map[string]bool) error {
	if command, isPod := c.commands[component]; isPod {
		return c.restartPod(ctx, component, command, changed)
	}

	if err := c.to.reloadSystemd(ctx, changed); err != nil {
		return err
	}

	if component == node.ComponentEtcd {
		c.yieldLeadership(ctx)
	}

	unit := &restartedUnit{}
	if component == node.ComponentKubelet {
		status, err := c.readNodeStatus(ctx)
		unit.wasReady = err == nil && status.readySince(time.Time{}) == nil
	}

	c.to.Log.Info("restarting for a new node document", slog.String("component", component))
	// It waits until the former process has ended, so that this one cannot answer the health check.
	if _, err := c.to.Run.Run(ctx, "systemctl", "restart", component); err != nil {
		return fmt.Errorf("restart %s: %w", component, err)
	}

	unit.at = c.to.Now().Truncate(time.Second)
	unit.exits, _ = c.readExits(ctx, component)
	unit.seen = unit.exits
	c.units[component] = unit

	return nil
}

// restartPod ends the process of a static pod, unless its manifest changed: then the kubelet does.
func (c machineControl) restartPod(
	ctx context.Context,
	pod string,
	command []string,
	changed map[string]bool,
) error {
	c.to.Log.Info("restarting for a new node document", slog.String("component", pod))
	for path := range changed {
		if podOfManifest(path) == pod {
			return nil
		}
	}

	if err := c.to.endProcess(ctx, command); err != nil {
		return fmt.Errorf("restart %s: %w", pod, err)
	}

	return nil
}

// yieldLeadership moves etcd's leadership away, so that the other members need no election. A failure is not fatal.
func (c machineControl) yieldLeadership(ctx context.Context) {
	if len(c.from.doc.Slots) == 1 {
		return
	}

	if _, err := c.from.newEtcdManager().YieldLeadership(ctx, c.from.Boot.Slot, etcd.ClientURL); err != nil {
		c.from.Log.Warn("cannot move etcd's leadership away before its restart", slog.Any("error", err))
	}
}

// Check implements componentControl.
func (c machineControl) Check(ctx context.Context, component string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()

	switch component {
	case node.ComponentContainerd:
		return c.checkContainerd(ctx)
	case node.ComponentKubelet:
		return c.checkKubelet(ctx)
	case node.ComponentEtcd:
		if !c.to.newEtcdManager().Healthy(ctx, etcd.ClientURL) {
			return errors.New("it does not answer with a quorum")
		}

		return nil
	default:
		return c.checkPod(ctx, component)
	}
}

// checkKubelet returns why the kubelet does not work. It answers health checks before it has started all of its parts,
// so the node must have become Ready after the restart, too.
func (c machineControl) checkKubelet(ctx context.Context) error {
	unit := c.units[node.ComponentKubelet]
	if unit != nil {
		if exits, known := c.readExits(ctx, node.ComponentKubelet); known {
			if err := unit.judgeExits(exits); err != nil {
				return err
			}
		}
	}

	if err := c.checkURL(ctx, kubeletHealthURL); err != nil || unit == nil || !unit.wasReady {
		return err
	}

	status, err := c.readNodeStatus(ctx)
	if err != nil {
		return nil //nolint:nilerr // without an API the kubelet's own answer has to do
	}

	return status.readySince(unit.at)
}

// readNodeStatus reads the status of this machine's Node.
func (c machineControl) readNodeStatus(ctx context.Context) (nodeStatus, error) {
	api := c.to.newNodeClient()
	if c.to.doc.Role == v1alpha1.RoleControlPlane {
		api = c.to.newAdminClient()
	}

	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	var status nodeStatus
	err := api.Get(ctx, "/api/v1/nodes/"+c.to.instance.Name, &status)

	return status, err
}

// readExits returns how often systemd has restarted a unit because its process exited.
func (c machineControl) readExits(ctx context.Context, unit string) (exits int, known bool) {
	return readExits(ctx, c.to.Run, unit)
}

func (c machineControl) checkContainerd(ctx context.Context) error {
	state, _ := c.to.Run.Run(ctx, "systemctl", "is-active", node.ComponentContainerd)
	if state = strings.TrimSpace(state); state != "active" {
		return fmt.Errorf("systemd reports it as %s", state)
	}

	_, err := c.to.Run.Run(ctx, "ctr", "version")

	return err
}

// checkPod returns why a static pod does not work, or still runs as before.
func (c machineControl) checkPod(ctx context.Context, pod string) error {
	p, found := findProcess(c.to.Root, c.commands[pod])
	if !found {
		return errors.New("it does not run with its new settings")
	}

	if p.pid == c.before[pod] {
		return errors.New("it has not restarted yet")
	}

	switch pod {
	case node.ComponentAPIServer:
		server := apiServerCheck{api: c.to.newAdminClient(), address: c.to.instance.Address.String()}
		if server.readiness(ctx) != apiServes {
			return errors.New("it does not authorize requests yet")
		}

		return nil
	case node.ComponentControllerManager:
		return c.checkURL(ctx, "https://127.0.0.1:"+kube.ControllerManagerPort+"/healthz")
	default:
		return c.checkURL(ctx, "https://127.0.0.1:"+kube.SchedulerPort+"/healthz")
	}
}

func (c machineControl) checkURL(ctx context.Context, url string) error {
	body, err := HTTPOpener{Client: c.http}.Open(ctx, url)
	if err != nil {
		return errors.New(healthCheckError(err))
	}

	return body.Close()
}
