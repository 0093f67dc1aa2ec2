// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// burstManifest is a group whose machines Karpenter starts.
const burstManifest = `apiVersion: slipway.dev/v1alpha1
kind: InstanceGroup
metadata:
  name: burst
spec:
  role: Worker
  manager: Karpenter
  maxSize: 2
  mixedInstancesPolicy: {instances: [m5.large, m5.xlarge]}
  nodeLabels: {example.com/kind: burst}
  rootVolume: {size: 20}
`

// burstWorkload is a Deployment whose pod fits on machines of that group only.
const burstWorkload = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: burst, namespace: default}
spec:
  replicas: 1
  selector: {matchLabels: {app: burst}}
  template:
    metadata: {labels: {app: burst}}
    spec:
      automountServiceAccountToken: false
      nodeSelector: {example.com/kind: burst}
      containers:
      - name: web
        image: %s
        resources: {requests: {cpu: 100m, memory: 64Mi}}
        securityContext: {allowPrivilegeEscalation: false, runAsNonRoot: true, runAsUser: 65534, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}
`

// TestKarpenter: the unmodified Karpenter starts a real machine for a pending pod, which joins through the join endpoint and becomes
// Ready, and ends it when it is empty. Without capacity on spot it starts one on demand. A deletion ends what it has started.
func TestKarpenter(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	e.runSteps(t, []step{
		{"up", createKarpenterCluster},
		{"the channel is applied", func(e *environment) { e.applyChannel("node-autoscaling.yaml", "karpenter", nil, "karpenter-crds.yaml") }},
		{"a pending pod gets a machine on spot", func(e *environment) { e.burst(ec2types.InstanceLifecycleTypeSpot) }},
		{"what Karpenter does is no drift", checkNoDrift},
		{"an empty machine is ended", endBurst},
		{"without capacity on spot it is on demand", burstOnDemand},
		{"a rolling update replaces it", rollBurst},
		{"delete leaves nothing", deleteKarpenterCluster},
	})
}

// createKarpenterCluster creates a cluster with a group of Karpenter. Nothing extends what 'state init' allows.
func createKarpenterCluster(e *environment) {
	e.runSlipway("state", "init", "--yes")
	e.runSlipway("iam", "init-discovery", discoveryStore, "--yes")
	e.runSlipway("create", "cluster", clusterName, "--zones", region+"a", "--control-plane-count", "1", "--yes")
	e.editManifest("  networking:\n", "  serviceAccountIssuerDiscovery: {discoveryStore: "+discoveryStore+"}\n  networking:\n")
	file := filepath.Join(e.t.TempDir(), "burst.yaml")
	writeFile(e.t, file, burstManifest)
	e.runSlipway("replace", "-f", file, "--name", clusterName, "--yes")
	e.runSlipway("apply", clusterName, "--yes")
	e.waitHealthy(10 * time.Minute)
	e.exportKubeconfig()
}

// burstMachines returns the machines of Karpenter that have not ended.
func (e *environment) burstMachines() []ec2types.Instance {
	e.t.Helper()
	out, err := ec2.NewFromConfig(e.aws).DescribeInstances(e.t.Context(), &ec2.DescribeInstancesInput{Filters: []ec2types.Filter{
		{Name: aws.String("tag:karpenter.sh/nodepool"), Values: []string{"burst"}},
		{Name: aws.String("instance-state-name"), Values: []string{"pending", "running", "shutting-down"}},
	}})
	if err != nil {
		e.t.Fatal(err)
	}
	var all []ec2types.Instance
	for _, r := range out.Reservations {
		all = append(all, r.Instances...)
	}

	return all
}

// burst creates the Deployment, and waits until its pod runs on a machine of Karpenter with this lifecycle.
func (e *environment) burst(lifecycle ec2types.InstanceLifecycleType) {
	e.t.Helper()
	e.waitUntil("the control plane has written the NodePool", 3*time.Minute, func() error {
		r := e.tryKubectl("wait", "nodepool/burst", "--for=condition=Ready", "--timeout=5s")
		if r.code != 0 {
			return fmt.Errorf("%s%s\n%s", r.out, r.err, e.tryKubectl("get", "ec2nodeclass,nodepool", "-o", "yaml").out)
		}

		return nil
	})
	file := filepath.Join(e.t.TempDir(), "workload.yaml")
	writeFile(e.t, file, fmt.Sprintf(burstWorkload, probeImage))
	start := time.Now()
	e.kubectl("apply", "-f", file)
	e.waitUntil("a machine runs for the pending pod", 3*time.Minute, func() error {
		if n := len(e.burstMachines()); n != 1 {
			return fmt.Errorf("there are %d: %s", n, e.tryKubectl("get", "nodeclaims", "-o", "yaml").out)
		}

		return nil
	})
	e.t.Logf("COUNT Karpenter has started a machine after %s", time.Since(start).Round(time.Second))
	if m := e.burstMachines()[0]; m.InstanceLifecycle != lifecycle {
		e.t.Errorf("the machine has the lifecycle %q, want %q", m.InstanceLifecycle, lifecycle)
	}
	e.waitUntil("the pod runs on it", 6*time.Minute, func() error {
		r := e.tryKubectl("wait", "deployment/burst", "--for=condition=Available", "--timeout=5s")
		if r.code != 0 {
			return fmt.Errorf("%s%s\n%s", r.out, r.err, e.tryKubectl("get", "nodes,nodeclaims,pods", "-o", "wide").out)
		}

		return nil
	})
	e.t.Logf("COUNT the pending pod runs on it after %s", time.Since(start).Round(time.Second))
	node := e.kubectl("get", "pods", "-l", "app=burst", "-o", "jsonpath={.items[0].spec.nodeName}")
	if out := e.kubectl("get", "node", node, "-o", `jsonpath={.metadata.labels.karpenter\.sh/registered} {.metadata.labels.slipway\.dev/group}`); out != "true burst" {
		e.t.Errorf("the Node of the pod has %q, want that Karpenter knows it and that it is of group burst", out)
	}
	e.t.Log("\n" + e.runSlipway("get", "instances", clusterName) + "\n" + e.kubectl("get", "nodeclaims,nodepools,ec2nodeclasses", "-o", "wide"))
	e.runSlipway("validate", "cluster", clusterName, "--wait", "2m")
}

// endBurst deletes the Deployment, and waits until the machine and its Node are gone.
func endBurst(e *environment) {
	start := time.Now()
	e.kubectl("delete", "deployment", "burst", "--wait")
	e.waitUntil("the empty machine is gone", 6*time.Minute, func() error {
		nodes := e.kubectl("get", "nodes", "-l", "slipway.dev/group=burst", "-o", "name")
		if n := len(e.burstMachines()); n > 0 || nodes != "" {
			return fmt.Errorf("%d machines and the Nodes %q", n, nodes)
		}

		return nil
	})
	e.t.Logf("COUNT the empty machine is gone after %s", time.Since(start).Round(time.Second))
}

// burstOnDemand is burst without capacity for spot instances.
func burstOnDemand(e *environment) {
	e.runSlipway("region", "faults", "add", "--effect", "no-capacity", "--kind", "spot")
	e.burst("")
	e.runSlipway("region", "faults", "clear")
}

// rollBurst changes the labels of the group. The machine stays after an apply, and Karpenter replaces it after a rolling update.
func rollBurst(e *environment) {
	before := *e.burstMachines()[0].InstanceId
	file := filepath.Join(e.t.TempDir(), "burst.yaml")
	writeFile(e.t, file, strings.Replace(burstManifest, "example.com/kind: burst", "example.com/kind: burst, example.com/round: two", 1))
	e.runSlipway("replace", "-f", file, "--name", clusterName, "--yes")
	e.runSlipway("apply", clusterName, "--yes")
	time.Sleep(90 * time.Second) // the control plane compares its objects once a minute
	if all := e.burstMachines(); len(all) != 1 || *all[0].InstanceId != before {
		e.t.Fatalf("an apply has replaced the machine: %+v", all)
	}
	if out := e.kubectl("get", "nodeclaims", "-o", `jsonpath={.items[*].status.conditions[?(@.type=="Drifted")].status}`); strings.Contains(out, "True") {
		e.t.Errorf("after an apply, the machine is drifted: %s", out)
	}
	start := time.Now()
	e.runSlipway("rolling-update", "cluster", clusterName, "--yes")
	e.waitUntil("another machine runs the pod", 8*time.Minute, func() error {
		all := e.burstMachines()
		nodes := e.kubectl("get", "nodes", "-l", "example.com/round=two", "-o", "name")
		available := e.tryKubectl("wait", "deployment/burst", "--for=condition=Available", "--timeout=5s")
		if len(all) != 1 || *all[0].InstanceId == before || nodes == "" || available.code != 0 {
			return fmt.Errorf("%d machines, the Nodes %q, %s", len(all), nodes, e.tryKubectl("get", "nodeclaims,pods", "-o", "wide").out)
		}

		return nil
	})
	e.t.Logf("COUNT a rolling update has had Karpenter replace the machine after %s", time.Since(start).Round(time.Second))
}

// deleteKarpenterCluster deletes the cluster while a machine of Karpenter runs.
func deleteKarpenterCluster(e *environment) {
	if n := len(e.burstMachines()); n != 1 {
		e.t.Errorf("there are %d machines of Karpenter, want 1", n)
	}
	out := e.runSlipway("delete", "cluster", clusterName, "--yes")
	if n := len(e.burstMachines()); n > 0 || !strings.Contains(out, "instance/leftover:") {
		e.t.Errorf("%d machines of Karpenter are left:\n%s", n, out)
	}
	templates, err := ec2.NewFromConfig(e.aws).DescribeLaunchTemplates(e.t.Context(), &ec2.DescribeLaunchTemplatesInput{})
	if err != nil || len(templates.LaunchTemplates) > 0 {
		e.t.Errorf("launch templates are left: %v %+v", err, templates)
	}
}
