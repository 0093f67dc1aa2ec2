// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// How long a component may take until it works with a new configuration. The first start of an API server takes most
// of it. Its startup probe gives it 4 minutes; a machine that needs more than podPatience keeps its former document, so
// that a configuration that does not work is taken back soon.
const (
	unitPatience = 60 * time.Second
	podPatience  = 150 * time.Second
	// steadyChecks is how many health checks in a row must succeed: a program that crashes at its start may answer one.
	steadyChecks = 3
	// checkInterval is the time between two health checks.
	checkInterval = time.Second
	// canarySoak is how long the first worker of a group must work with a new document before others apply it. The
	// kubelet evaluates eviction thresholds and reports its node every 10 s.
	canarySoak = 30 * time.Second
)

// componentControl restarts components of the machine and checks their health.
type componentControl interface {
	// Restart restarts a component so that it reads the changed files. The kubelet restarts static pods whose
	// manifest changed by itself.
	Restart(ctx context.Context, component string, changed map[string]bool) error
	// Check returns why a component does not work, or still runs as before the change.
	Check(ctx context.Context, component string) error
}

// transition changes one machine from a node document to another one, one component after the other. When a component
// does not work with its new configuration, everything is changed back.
type transition struct {
	from, to *Agent
	// control of the machine on the way to the new document, and on the way back.
	control func(from, to *Agent) componentControl
	// written are the changed files that were written.
	written map[string]bool
	// soak is how long the changed components must work without interruption.
	soak time.Duration
	// mayGoOn returns why no further component may restart; nil: never.
	mayGoOn func() error
	// sysctls are the kernel settings before the change, by path below /proc/sys.
	sysctls map[string]string
}

// rolledBackError is why a document was not applied. The machine has its former document.
type rolledBackError struct{ cause error }

// Error returns the cause.
func (e rolledBackError) Error() string { return e.cause.Error() }

// Unwrap returns the cause.
func (e rolledBackError) Unwrap() error { return e.cause }

// run applies the new document. Its error is a rolledBackError if the machine has its former document again. After
// any other error, such as the end of ctx, the machine may be in between: the agent has to converge it to the former
// document.
func (t *transition) run(ctx context.Context) error {
	was, err := t.from.machineFiles()
	if err != nil {
		return rolledBackError{err} // nothing was changed
	}

	will, err := t.to.machineFiles()
	if err != nil {
		return rolledBackError{err}
	}

	t.written = map[string]bool{}
	if t.sysctls, err = t.from.readSysctls(changedSysctls(t.from.sysctls(), t.to.sysctls())); err != nil {
		return rolledBackError{err}
	}

	err = t.apply(ctx, t.to, changedFiles(was, will), t.control(t.from, t.to))
	if err == nil || ctx.Err() != nil {
		return err
	}

	t.from.Log.Error("a component does not work with the new node document; restoring the former one",
		slog.Any("error", err))
	if backErr := t.rollBack(ctx, changedFiles(will, was)); backErr != nil {
		return errors.Join(err, fmt.Errorf("restore the former node document: %w", backErr))
	}

	return rolledBackError{err}
}

// apply writes files and certificates of an agent's document and restarts what reads them.
func (t *transition) apply(ctx context.Context, a *Agent, files []File, control componentControl) error {
	err := t.write(ctx, a, slices.DeleteFunc(slices.Clone(files), func(f File) bool {
		return len(componentsReading(f.Path)) > 0
	}))
	if err != nil {
		return err
	}

	if a.doc.Role == v1alpha1.RoleControlPlane {
		if err := a.renewCertificates(); err != nil {
			return err
		}
	}

	if err := t.applySysctls(a); err != nil {
		return err
	}

	for _, component := range componentsOf(files) {
		if t.mayGoOn != nil {
			if err := t.mayGoOn(); err != nil {
				return err
			}
		}

		if err := t.applyComponent(ctx, a, component, files, control); err != nil {
			return fmt.Errorf("%s: %w", component, err)
		}
	}

	return t.awaitSoak(ctx, files, control)
}

// awaitSoak waits until the components of files have worked without interruption for some time: a setting such as a
// threshold can make a node useless some seconds after its kubelet has started.
func (t *transition) awaitSoak(ctx context.Context, files []File, control componentControl) error {
	checks := int(t.soak / checkInterval)
	if checks == 0 {
		return nil
	}

	every := everyComponent{componentControl: control, names: componentsOf(files)}

	return t.awaitComponent(ctx, "", every, steadiness{2 * t.soak, checks})
}

// everyComponent checks several components at once.
type everyComponent struct {
	componentControl
	names []string
}

// Check returns why one of the components does not work.
func (e everyComponent) Check(ctx context.Context, _ string) error {
	for _, name := range e.names {
		if err := e.componentControl.Check(ctx, name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}

	return nil
}

// applySysctls sets the kernel settings that differ between the documents: those of the new one, or those that the
// kernel had before.
func (t *transition) applySysctls(a *Agent) error {
	if a == t.from {
		return errors.Join(a.applySysctls(t.sysctls)...)
	}

	return errors.Join(a.applySysctls(changedSysctls(t.from.sysctls(), a.sysctls()))...)
}

// applyComponent writes the files of one component, restarts it and waits until it works.
func (t *transition) applyComponent(
	ctx context.Context,
	a *Agent,
	component string,
	files []File,
	control componentControl,
) error {
	reads := slices.DeleteFunc(slices.Clone(files), func(f File) bool {
		// The kubelet restarts a pod when its file changes, so it has to be the pod's turn.
		if pod := podOfManifest(f.Path); pod != "" {
			return pod != component
		}

		return !slices.Contains(componentsReading(f.Path), component)
	})
	if err := t.write(ctx, a, reads); err != nil {
		return err
	}

	changed := map[string]bool{}
	for _, f := range reads {
		changed[f.Path] = true
	}

	a.Report.Running("document", "restarting "+component)
	patience := patienceOf(component)
	restartCtx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := control.Restart(restartCtx, component, changed); err != nil {
		return err
	}

	return t.awaitComponent(ctx, component, control, steadiness{patience, steadyChecks})
}

// steadiness is how long a component may take until it works, and how many checks in a row must succeed then.
type steadiness struct {
	patience time.Duration
	checks   int
}

// awaitComponent waits until a component works steadily.
func (t *transition) awaitComponent(
	ctx context.Context,
	component string,
	control componentControl,
	want steadiness,
) error {
	deadline := t.from.Now().Add(want.patience)
	steady := 0
	for {
		err := control.Check(ctx, component)
		steady++
		if err != nil {
			steady = 0
		}

		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case steady >= want.checks:
			return nil
		case isCrashLoop(err):
			return err
		case err != nil && !t.from.Now().Before(deadline):
			return fmt.Errorf("does not work %s after its restart: %w", want.patience, err)
		}

		if err := t.from.Wait(ctx, checkInterval); err != nil {
			return err
		}
	}
}

// rollBack writes the files of the former document again and restarts what read the new ones. One component that does
// not work does not keep the others from being restored.
func (t *transition) rollBack(ctx context.Context, files []File) error {
	a := t.from
	control := t.control(t.to, t.from)
	files = slices.DeleteFunc(files, func(f File) bool { return !t.written[f.Path] })
	errs := []error{
		t.write(ctx, a, slices.DeleteFunc(slices.Clone(files), func(f File) bool {
			return len(componentsReading(f.Path)) > 0
		})),
		t.applySysctls(a),
	}

	if a.doc.Role == v1alpha1.RoleControlPlane {
		errs = append(errs, a.renewCertificates())
	}

	for _, component := range componentsOf(files) {
		if err := t.applyComponent(ctx, a, component, files, control); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", component, err))
		}
	}

	return errors.Join(errs...)
}

// write writes files, unless ctx has ended.
func (t *transition) write(ctx context.Context, a *Agent, files []File) error {
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return err
		}

		t.written[f.Path] = true
		if _, err := a.Root.Write(f); err != nil {
			return err
		}
	}

	return nil
}

func patienceOf(component string) time.Duration {
	switch component {
	case node.ComponentContainerd, node.ComponentKubelet, node.ComponentEtcd:
		return unitPatience
	default:
		return podPatience
	}
}
