// SPDX-License-Identifier: Apache-2.0

package rollingupdate

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/cluster/drain"
	"github.com/slipway-k8s/slipway/internal/cluster/rollout"
	"github.com/slipway-k8s/slipway/internal/lib/diag"
	"github.com/slipway-k8s/slipway/internal/manifest"
)

// maxNamedPods is how many pods one warning names.
const maxNamedPods = 5

// explainPlan shows what the table of machines does not: the estimated time, the gates, and what a drain will lose or
// cannot do.
func (u *updater) explainPlan(ctx context.Context, o rollout.Observation, options rollout.Options) error {
	u.notify("estimated time: about %s", rollout.Estimate(o, options, rollout.DefaultReplaceTime).Round(time.Minute))
	for _, gate := range u.observer.settings.describeGates() {
		u.notify("%s", gate)
	}

	var warnings diag.Findings
	budgets, err := drain.StuckBudgets(ctx, u.client)
	if err != nil {
		return err
	}

	for _, b := range budgets {
		warnings.Warnf(
			"disruption budget "+b.Name,
			"",
			"add a replica or relax the budget; the drain waits until then",
			"allows no eviction: it requires %d of %d pods",
			b.Required,
			b.Pods,
		)
	}

	pods, err := u.plannedPods(ctx, o, options)
	if err != nil {
		return err
	}

	if n := len(pods.Unmanaged); n > 0 {
		warnings.Warnf(namePods(pods.Unmanaged), "", "create them with a Deployment or a Job",
			"will be deleted for good: no controller creates a pod again that has none (%d pods)", n)
	}

	if n := len(pods.LocalData); n > 0 {
		warnings.Warnf(namePods(pods.LocalData), "", "",
			"will lose the data in their emptyDir volumes (%d pods)", n)
	}

	u.warn(warnings)

	return nil
}

// plannedPods returns the pods that the update will evict from the machines that are outdated now.
func (u *updater) plannedPods(
	ctx context.Context,
	o rollout.Observation,
	options rollout.Options,
) (drain.Pods, error) {
	list, err := u.client.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return drain.Pods{}, fmt.Errorf("list pods: %w", err)
	}

	isPlanned := map[string]bool{}
	for _, a := range rollout.Plan(o, options) {
		isPlanned[a.Machine.NodeName] = a.Machine.NodeName != ""
	}

	var pods []corev1.Pod
	for _, p := range list.Items {
		if isPlanned[p.Spec.NodeName] {
			pods = append(pods, p)
		}
	}

	return drain.Classify(pods), nil
}

// namePods names some pods.
func namePods(pods []string) string {
	text := "pod "
	if len(pods) > 1 {
		text = "pods "
	}

	if len(pods) > maxNamedPods {
		return text + strings.Join(pods[:maxNamedPods], ", ") + ", …"
	}

	return text + strings.Join(pods, ", ")
}

// DescribeGates returns one line for each gate of the manifests, since a command runs on the operator's computer.
func DescribeGates(set manifest.Set) []string {
	all := allSettings{groups: map[string]settings{}, gates: set.Cluster.Spec.RollingUpdate.Gates}
	for _, g := range set.Groups {
		all.groups[g.Metadata.Name] = settings{gates: g.Spec.RollingUpdate.Gates}
	}

	return all.describeGates()
}

// describeGates returns one line for each gate.
func (a allSettings) describeGates() []string {
	var out []string
	add := func(where string, gates []v1alpha1.Gate) {
		for _, g := range gates {
			out = append(out, fmt.Sprintf("gate %s%s: %s", g.Name, where, describeGate(g)))
		}
	}

	add("", a.gates)
	for _, name := range a.names() {
		add(" of group "+name, a.of(name).gates)
	}

	return out
}

// describeGate returns what a gate checks.
func describeGate(g v1alpha1.Gate) string {
	switch {
	case g.Deployment != "":
		return "deployment " + g.Deployment + " is available"
	case g.URL != "":
		return "GET " + g.URL + " succeeds"
	}

	return "command succeeds: " + strings.Join(g.Command, " ")
}
