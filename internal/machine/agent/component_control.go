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
	http     *http.Client
}

// newMachineControl returns the control of a machine that is about to change.
func newMachineControl(from, to *Agent) componentControl {
	c := machineControl{from: from, to: to, before: map[string]int{}, commands: podCommands(to)}
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

	c.to.Log.Info("restarting for a new node document", slog.String("component", component))
	// It waits until the former process has ended, so that this one cannot answer the health check.
	if _, err := c.to.Run.Run(ctx, "systemctl", "restart", component); err != nil {
		return fmt.Errorf("restart %s: %w", component, err)
	}

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
		return c.checkURL(ctx, kubeletHealthURL)
	case node.ComponentEtcd:
		if !c.to.newEtcdManager().Healthy(ctx, etcd.ClientURL) {
			return errors.New("it does not answer with a quorum")
		}

		return nil
	default:
		return c.checkPod(ctx, component)
	}
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
