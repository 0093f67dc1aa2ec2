// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// restoreInterval is the time between two looks at what the agent owns. Two looks and a restoration
// take less than the promised 15 seconds.
const restoreInterval = 3 * time.Second

// Files of the agent itself, which the boot script wrote.
const (
	agentConfigFile = "/etc/slipway/boot.json"
	agentUnitFile   = "/etc/systemd/system/slipway-node.service"
	agentUnitLink   = "/etc/systemd/system/multi-user.target.wants/slipway-node.service"
)

// restorer puts back what the agent owns and somebody else changed: files, directories, links,
// kernel settings and stopped units. It reports each change. It restarts a program only if the
// program was started while a file that it reads was wrong.
type restorer struct {
	agent *Agent
	log   restoreLog
	// verifiedAt is when a look last found each path right.
	verifiedAt map[string]time.Time
	// lookedAt is the time of the last look.
	lookedAt time.Time
	// sysctls are the kernel settings that were right once. Others cannot be set on this machine.
	sysctls map[string]bool
	// stopped counts the looks in a row at which a unit did not run.
	stopped map[string]int
}

func newRestorer(a *Agent) *restorer {
	a.Root.Adopt(agentConfigFile, 0o600, 0)
	a.Root.Adopt(agentUnitFile, 0o644, 0)
	a.Root.AdoptLink(agentUnitLink)

	return &restorer{
		agent:      a,
		verifiedAt: map[string]time.Time{},
		lookedAt:   a.Now(),
		sysctls:    map[string]bool{},
		stopped:    map[string]int{},
	}
}

// lookAndRestore takes one look and restores what is wrong.
func (r *restorer) lookAndRestore(ctx context.Context) error {
	damaged := map[string]bool{}
	err := errors.Join(
		r.restorePaths(ctx, damaged),
		r.restoreSysctls(damaged),
		r.restoreUnits(ctx, damaged),
	)
	for _, name := range r.log.clearFailures(damaged) {
		r.agent.Report.Restored(name + " is right again")
	}

	r.agent.conditions.Set(r.log.newCondition(r.agent.Now()), r.agent.Now())
	r.lookedAt = r.agent.Now()

	return err
}

// noteRestoration records and reports one change by somebody else.
func (r *restorer) noteRestoration(name, what string, err error) {
	a := r.agent
	r.log.recordChange(name, what, err, a.Now())
	if err != nil {
		a.Log.Error("somebody else changed what the agent owns; it cannot be restored",
			slog.String("name", name), slog.String("change", what), slog.Any("error", err))
		a.Report.Failed("restore", fmt.Errorf("%s %s and cannot be restored: %w", name, what, err))

		return
	}

	a.Log.Warn("somebody else changed what the agent owns; restored it",
		slog.String("name", name), slog.String("change", what))
	a.Report.Restored(name + " " + what + " by someone else; restored")
}

// restorePaths restores files, directories and links, and lets the programs that read them take the
// restored content.
func (r *restorer) restorePaths(ctx context.Context, damaged map[string]bool) error {
	a := r.agent
	var restored []string
	var errs []error

	// The directory of etcd's data is on a volume, which may be missing: it must not be created on
	// the root disk.
	for _, d := range a.Root.findDamage(etcd.DataMount) {
		damaged[d.path] = true
		if !r.log.mayRestore(d.path, a.Now()) {
			continue
		}

		err := a.Root.Restore(d.path)
		r.noteRestoration(d.path, d.what, err)
		if err == nil {
			restored = append(restored, d.path)
		}

		errs = append(errs, err)
	}

	if len(restored) > 0 {
		errs = append(errs, r.reloadReaders(ctx, restored))
	}

	for _, path := range a.Root.OwnedFiles() {
		if !damaged[path] {
			r.verifiedAt[path] = a.Now()
		}
	}

	return errors.Join(errs...)
}

// reloadReaders makes systemd read restored units, and restarts the programs that were started since
// a file that they read was last right.
func (r *restorer) reloadReaders(ctx context.Context, restored []string) error {
	a := r.agent
	changed := map[string]bool{}
	for _, path := range restored {
		changed[path] = true
	}

	errs := []error{a.reloadSystemd(ctx, changed)}
	for _, path := range restored {
		right, ok := r.verifiedAt[path]
		if !ok {
			right = r.lookedAt
		}

		for _, unit := range unitsReading(path) {
			errs = append(errs, r.restartUnitStartedSince(ctx, unit, right))
		}

		for _, pod := range staticPodsReading(path) {
			errs = append(errs, r.restartPodStartedSince(ctx, pod, right))
		}
	}

	return errors.Join(errs...)
}

// unitsReading returns the systemd units that read a file only when they start. Keys and
// certificates are reloaded by all programs.
func unitsReading(file string) []string {
	switch file {
	case "/etc/systemd/system/containerd.service", "/etc/containerd/config.toml", kube.RuntimeSpecPath:
		return []string{"containerd"}
	case "/etc/systemd/system/kubelet.service", "/var/lib/kubelet/config.yaml", kube.KubeconfigPath("kubelet"),
		kube.CredentialProviderConfigPath:
		return []string{"kubelet"}
	case "/etc/systemd/system/etcd.service", etcd.SettingsFile:
		return []string{"etcd"}
	default:
		return nil
	}
}

// staticPodsReading returns the static pods that read a file only when they start.
func staticPodsReading(file string) []string {
	switch file {
	case kube.ConfigDir + "/admission.yaml", kube.ConfigDir + "/audit-policy.yaml",
		kube.SecretDir + "/encryption.yaml", kube.ComponentDir(kube.APIServer) + "/service-account.pub",
		kube.ComponentDir(kube.APIServer) + "/service-account.key":
		return []string{"kube-apiserver"}
	case kube.ComponentDir(kube.ControllerManager) + "/service-account.key":
		return []string{"kube-controller-manager"}
	case kube.ComponentKubeconfig(kube.ControllerManager):
		return []string{"kube-controller-manager"}
	case kube.ComponentKubeconfig(kube.Scheduler):
		return []string{"kube-scheduler"}
	default:
		return nil
	}
}

// restartUnitStartedSince restarts a unit if its process was started after right, when a file that it
// reads was still right.
func (r *restorer) restartUnitStartedSince(ctx context.Context, unit string, right time.Time) error {
	a := r.agent
	since, err := a.Run.Run(ctx, "systemctl", "show", unit,
		"--property=ExecMainStartTimestamp", "--value", "--timestamp=unix")
	if err != nil {
		return fmt.Errorf("find the start of %s: %w", unit, err)
	}

	// systemd prints whole seconds.
	started, ok := parseUnixTimestamp(since)
	if !ok || started.Before(right.Truncate(time.Second)) {
		return nil
	}

	a.Log.Warn("restarting a unit that was started with a changed file", slog.String("unit", unit))
	if _, err := a.Run.Run(ctx, "systemctl", "try-restart", "--no-block", unit); err != nil {
		return fmt.Errorf("restart %s: %w", unit, err)
	}

	return nil
}

// restartPodStartedSince ends the process of a static pod if it was started after right. The kubelet
// starts it again.
func (r *restorer) restartPodStartedSince(ctx context.Context, pod string, right time.Time) error {
	a := r.agent
	c := a.kubeConfig()
	c.EtcdURL = etcd.ClientURL
	p, found := findProcess(a.Root, kube.StaticPodCommands(c)[pod])
	if !found || p.started.Before(right) {
		return nil
	}

	a.Log.Warn("restarting a static pod that was started with a changed file", slog.String("pod", pod))
	if _, err := a.Run.Run(ctx, "kill", "-TERM", strconv.Itoa(p.pid)); err != nil {
		return fmt.Errorf("restart %s: %w", pod, err)
	}

	return nil
}

// restoreSysctls sets the kernel settings that were right once and are not any more.
func (r *restorer) restoreSysctls(damaged map[string]bool) error {
	a := r.agent
	var errs []error
	for key, want := range a.sysctls() {
		file := a.Root.Path("/proc/sys/" + key)
		body, err := os.ReadFile(file)
		if err != nil {
			continue // the kernel does not have it, or its module is not loaded
		}

		have := strings.TrimSpace(string(body))
		if satisfiesSysctl(key, have, want) {
			r.sysctls[key] = true
			continue
		}

		name := "sysctl " + strings.ReplaceAll(key, "/", ".")
		if !r.sysctls[key] {
			continue // prepareHost has logged that it cannot be set
		}

		damaged[name] = true
		if !r.log.mayRestore(name, a.Now()) {
			continue
		}

		if err = os.WriteFile(file, []byte(want), 0o644); err != nil {
			err = fmt.Errorf("set %s to %s: %w", name, want, err)
		}

		r.noteRestoration(name, fmt.Sprintf("was set to %s instead of %s", have, want), err)
		errs = append(errs, err)
	}

	return errors.Join(errs...)
}

// stoppedLooks is the number of looks in a row after which a unit counts as stopped: during a restart
// it does not run for a moment.
const stoppedLooks = 2

// restoreUnits starts the units that somebody stopped, masked or disabled.
func (r *restorer) restoreUnits(ctx context.Context, damaged map[string]bool) error {
	units := r.agent.ownedUnits()
	states := r.agent.unitStates(ctx, units)
	var errs []error

	for i, unit := range units {
		name := "systemd unit " + unit
		if !slices.Contains([]string{"inactive", "failed"}, states[i]) {
			r.stopped[unit] = 0
			continue
		}

		damaged[name] = true
		r.stopped[unit]++
		if r.stopped[unit] < stoppedLooks || !r.log.mayRestore(name, r.agent.Now()) {
			continue
		}

		if r.isSystemStopping(ctx) {
			return nil
		}

		r.stopped[unit] = 0
		err := r.startStoppedUnit(ctx, unit)
		r.noteRestoration(name, "was stopped", err)
		errs = append(errs, err)
	}

	return errors.Join(errs...)
}

// ownedUnits returns the units that must run on this machine now.
func (a *Agent) ownedUnits() []string {
	units := []string{"containerd", "kubelet"}
	if a.doc.Role == v1alpha1.RoleControlPlane && !a.etcdStopped.Load() && !a.etcdFenced.Load() {
		units = append(units, "etcd")
	}

	return units
}

// unitStates returns systemd's state of each unit, such as active; empty if it cannot be read.
func (a *Agent) unitStates(ctx context.Context, units []string) []string {
	// is-active prints one state a unit. It fails if one of them is not active.
	out, _ := a.Run.Run(ctx, "systemctl", append([]string{"is-active"}, units...)...)
	states := make([]string, len(units))
	for i, state := range strings.Fields(out) {
		if i < len(states) {
			states[i] = state
		}
	}

	return states
}

// isSystemStopping reports whether the machine shuts down.
func (r *restorer) isSystemStopping(ctx context.Context) bool {
	state, _ := r.agent.Run.Run(ctx, "systemctl", "is-system-running")

	return strings.TrimSpace(state) == "stopping"
}

// startStoppedUnit starts a unit, also if it is masked until the next boot. A permanent mask replaced
// the unit's file, which was restored before.
func (r *restorer) startStoppedUnit(ctx context.Context, unit string) error {
	a := r.agent
	mask := "/run/systemd/system/" + unit + ".service"
	if a.Root.Exists(mask) {
		if _, err := a.Run.Run(ctx, "systemctl", "unmask", "--runtime", unit); err != nil {
			return fmt.Errorf("unmask %s: %w", unit, err)
		}
	}

	if _, err := a.Run.Run(ctx, "systemctl", "start", "--no-block", unit); err != nil {
		return fmt.Errorf("start %s: %w", unit, err)
	}

	return nil
}
