// SPDX-License-Identifier: Apache-2.0

package health

import (
	"slices"

	"github.com/slipway-k8s/slipway/internal/machine/report"
)

// checkAPI checks that the API answers, and every API server by the report of its machine.
func checkAPI(f Facts) []Check {
	whole := Check{Kind: KindAPI, Name: "kube-apiserver", Cause: f.APIError}
	if f.APIError != "" {
		whole.Severity = Critical
		whole.Hint = "see the checks of etcd, machines and targets for the reason"
		if targetsAreHealthy(f) {
			whole.Hint = "its targets are healthy: check the way from this computer to the load balancer (access.api of " +
				"the manifest, VPN, proxy, DNS)"
		}
	}

	out := []Check{whole}
	for _, g := range f.slots() {
		i, running := f.machineOfSlot(g)
		r, fresh := f.freshReport(i.ID)
		condition, reported := r.Condition(report.KubeAPI)
		if running && fresh && reported {
			out = append(out, conditionCheck(KindAPI, "kube-apiserver of "+machineName(i), i, condition))
		}
	}

	return out
}

// targetsAreHealthy reports whether the load balancers reach every API server.
func targetsAreHealthy(f Facts) bool {
	return len(f.Targets) > 0 &&
		!slices.ContainsFunc(f.Targets, func(t Target) bool { return t.State != "healthy" })
}

// checkTargets checks that every target of the API's load balancers is healthy, and that every machine of the
// control plane is a target.
func checkTargets(f Facts) []Check {
	var out []Check
	groups := map[string][]string{} // instance ids by target group
	for _, t := range f.Targets {
		groups[t.Group] = append(groups[t.Group], t.Instance)
		at := slices.IndexFunc(f.Instances, func(i Instance) bool { return i.ID == t.Instance })
		name := t.Instance
		if at >= 0 {
			name = machineName(f.Instances[at])
		}

		// A target that leaves belongs to a machine that is being replaced.
		if t.State == "draining" || at >= 0 && f.Instances[at].State != "running" {
			continue
		}

		c := Check{Kind: KindTarget, Name: t.Group + " " + name, Machine: t.Instance}
		if t.State != "healthy" {
			c.Severity = Failed
			c.Cause = "the load balancer sends it no requests: " + targetState(t)
			c.Hint = targetHint(t)
		}

		out = append(out, c)
	}

	return append(out, missingTargets(f, groups)...)
}

func targetState(t Target) string {
	if t.Description == "" {
		return t.State
	}

	return t.State + ": " + t.Description
}

func targetHint(t Target) string {
	if t.State == "initial" {
		return "wait: AWS checks a new target for some seconds before it sends requests"
	}

	return "see the API server of the machine, and whether its security group admits the load balancer's health check"
}

// missingTargets returns a failed check for each running machine of the control plane that a target group
// lacks.
func missingTargets(f Facts, groups map[string][]string) []Check {
	var out []Check
	for name, targets := range groups {
		for _, i := range f.Instances {
			if i.Slot == "" || i.State != "running" || slices.Contains(targets, i.ID) {
				continue
			}

			out = append(out, Check{
				Kind:     KindTarget,
				Name:     name + " " + machineName(i),
				Machine:  i.ID,
				Severity: Failed,
				Cause:    "is not registered with the target group, so it gets no requests",
				Hint: "auto scaling registers a machine while it starts; if it stays so, terminate the machine, or " +
					"register it: aws elbv2 register-targets",
			})
		}
	}

	return out
}
