// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// TestSpine tests one cluster from its creation to its deletion. Its steps share the cluster and
// run in order. The test stops after the first failed step, since the others would fail too.
func TestSpine(t *testing.T) {
	e := newEnvironment(t)
	e.runSteps(t, []step{
		{"up", createCluster},
		{"plan after apply is empty", checkEmptyPlan},
		{"drift of one rule is one change", checkRuleDrift},
		{"pods talk across workers", checkPodNetwork},
		{"containers in the network of a machine reach no metadata", checkHostPods},
		{"add-ons are applied, and an unhealthy one stops", checkAddons},
		{"data is written", writeData},
		{"a worker's role allows no secret and no mutation", checkWorkerRole},
		{"a worker gets only its own certificate", checkWorkerCertificate},
		{"a wrong hash stops the boot and is reported", checkWrongHash},
		{"the region's process restarts", checkRegionRestart},
		{"an agent restores what it owns", checkRestoration},
		{"API servers restart", checkAPIRestart},
		{"a member's volume is lost", loseVolume},
		{"kube-bench reports no failure", checkBenchmark},
		{"the VPC gets a domain name", setDomainName},
		{"a control-plane machine is lost", loseControlPlane},
		{"a worker is lost", loseWorker},
		{"documents are followed", followDocuments},
		{"a slot is handed over", handOverSlot},
		{"workers are replaced", replaceWorkers},
		{"nodes have the names of EC2", func(e *environment) { e.checkDomainName(e.anyMachine("worker")) }},
		{"all control-plane machines are lost", loseAllControlPlanes},
		{"delete leaves nothing", deleteCluster},
		{"destroy leaves nothing, also after kill -9", destroyAfterKill},
	})
}

func createCluster(e *environment) {
	e.runSlipway("state", "init", "--yes")
	e.runSlipway("create", "cluster", clusterName, "--zones", region+"a,"+region+"b,"+region+"c", "--yes")
	start := time.Now()
	e.runSlipway("apply", clusterName, "--yes")
	e.waitHealthy(10 * time.Minute)
	e.created = time.Since(start)
	e.exportKubeconfig()
	names, err := e.readyNodes()
	if err != nil || len(names) != 5 {
		e.t.Fatalf("%d Ready nodes, want 5: %v %v", len(names), names, err)
	}
	checkNodeMetadata(e)
	checkMachineSettings(e)
}

// checkMachineSettings checks what a machine of AWS has or lacks when it boots, and what the agent makes of it: the bridge
// filter, kube-proxy's limits and its health address, and the files that kube-bench looks for.
func checkMachineSettings(e *environment) {
	e.t.Helper()
	for _, role := range []string{"control-plane", "worker"} {
		id := e.anyMachine(role)
		for script, want := range map[string]string{
			"cat /proc/sys/net/bridge/bridge-nf-call-iptables /proc/sys/net/bridge/bridge-nf-call-ip6tables": "1\n1",
			"cat /proc/sys/net/netfilter/nf_conntrack_tcp_timeout_established":                               "86400",
			"cat /proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait":                                "3600",
			`curl -s -o /dev/null -w '%{http_code}' "http://$(hostname -I | cut -d' ' -f1):10256/healthz"`:   "200",
			"stat -c '%a %U' /etc/kubernetes/kubelet.conf":                                                   "600 root",
			"find /etc/kubernetes/pki/ | xargs stat -c %U:%G | sort -u":                                      "root:root",
		} {
			if got := e.mustRunInMachine(id, script); got != want {
				e.t.Errorf("%s, %s: %q, want %q", role, script, got, want)
			}
		}
	}
	id := e.anyMachine("control-plane")
	got := e.mustRunInMachine(id, "stat -c '%a %U' /etc/etcd/etcd.conf /etc/kubernetes/scheduler.conf /etc/kubernetes/controller-manager.conf | sort -u")
	if got != "600 root" {
		e.t.Errorf("files of the control plane: %q, want 600 root", got)
	}
	for component, want := range map[string]string{"kube-apiserver": "6443", "kube-controller-manager": "10257", "kube-scheduler": "10259"} {
		directory := "/run/slipway/" + component
		script := "stat -c %u $(grep -lz '^" + component + "$' /proc/[0-9]*/cmdline 2>/dev/null | head -1 | xargs dirname) " + directory + "/* | sort -u"
		if got := e.mustRunInMachine(id, script); got != want {
			e.t.Errorf("%s and its keys have the users %q, want %s", component, got, want)
		}
		if got := e.mustRunInMachine(id, "stat -c '%a %u %g' "+directory); got != "750 0 "+want {
			e.t.Errorf("the directory of %s has the mode, user and group %q, want 750 0 %s", component, got, want)
		}
	}
}

// checkNodeMetadata compares the metadata of nodes in Kubernetes with that of their machines in
// EC2.
func checkNodeMetadata(e *environment) {
	e.t.Helper()
	out, err := ec2.NewFromConfig(e.aws).DescribeInstances(e.t.Context(), &ec2.DescribeInstancesInput{})
	if err != nil {
		e.t.Fatal(err)
	}
	want := map[string]string{}
	for _, r := range out.Reservations {
		for _, i := range r.Instances {
			zone := *i.Placement.AvailabilityZone
			want[aws.ToString(i.PrivateDnsName)] = fmt.Sprintf("aws:///%s/%s %s %s %s", zone, *i.InstanceId, region, zone, i.InstanceType)
		}
	}
	got := e.kubectl("get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name}={.spec.providerID} {.metadata.labels.topology\.kubernetes\.io/region} {.metadata.labels.topology\.kubernetes\.io/zone} {.metadata.labels.node\.kubernetes\.io/instance-type}{"\n"}{end}`)
	for line := range strings.Lines(got) {
		name, facts, _ := strings.Cut(strings.TrimSpace(line), "=")
		if facts != want[name] {
			e.t.Errorf("node %s has %q, EC2 has %q", name, facts, want[name])
		}
		if id, _, _ := strings.Cut(name, "."); !strings.Contains(facts, "/"+id+" ") {
			e.t.Errorf("node %s (%s) is not named by its instance", name, facts)
		}
	}
}

func checkEmptyPlan(e *environment) {
	if r := e.runProgram(e.slipway, "plan", clusterName); r.code != 0 {
		e.t.Fatalf("plan after apply: exit status %d\n%s", r.code, r.out)
	}
}

// checkRuleDrift removes one security group rule with the AWS CLI. The plan must contain exactly
// one change, and apply must repair it.
func checkRuleDrift(e *environment) {
	c := ec2.NewFromConfig(e.aws)
	groups, err := c.DescribeSecurityGroups(e.t.Context(), &ec2.DescribeSecurityGroupsInput{
		Filters: []ec2types.Filter{{Name: aws.String("tag:slipway.dev/cluster"), Values: []string{clusterName}}},
	})
	if err != nil {
		e.t.Fatal(err)
	}
	var ids []string
	for _, g := range groups.SecurityGroups {
		ids = append(ids, *g.GroupId)
	}
	out, err := c.DescribeSecurityGroupRules(e.t.Context(), &ec2.DescribeSecurityGroupRulesInput{
		Filters: []ec2types.Filter{{Name: aws.String("group-id"), Values: ids}},
	})
	if err != nil {
		e.t.Fatal(err)
	}
	for _, rule := range out.SecurityGroupRules {
		if aws.ToBool(rule.IsEgress) || aws.ToInt32(rule.FromPort) != 10250 {
			continue
		}
		if r := e.runProgram("aws", "ec2", "revoke-security-group-ingress", "--group-id", *rule.GroupId, "--security-group-rule-ids", *rule.SecurityGroupRuleId); r.code != 0 {
			e.t.Fatal(r.err)
		}
		r := e.runProgram(e.slipway, "plan", clusterName, "-o", "json")
		var plan struct {
			Steps []struct{ Action, Address string }
		}
		if err := json.Unmarshal([]byte(r.out), &plan); err != nil {
			e.t.Fatalf("plan prints no JSON: %v\n%s", err, r.out)
		}
		if r.code != 2 || len(plan.Steps) != 1 || plan.Steps[0].Action != "create" {
			e.t.Fatalf("exit status %d, steps %+v; want 2 and one creation", r.code, plan.Steps)
		}
		e.runSlipway("apply", clusterName, "--yes")
		checkEmptyPlan(e)
		return
	}
	e.t.Fatalf("no rule for 10250 among %d of the cluster's", len(out.SecurityGroupRules))
}

// probeManifest is a Service with one pod on each worker. The built assets contain its image.
const probeManifest = `
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: probe, namespace: default}
spec:
  selector: {matchLabels: {app: probe}}
  template:
    metadata: {labels: {app: probe}}
    spec:
      containers:
      - name: probe
        image: %s
        args: [serve, ":8080"]
        ports: [{containerPort: 8080}]
        securityContext: {allowPrivilegeEscalation: false, runAsNonRoot: true, runAsUser: 65534, capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}
---
apiVersion: v1
kind: Service
metadata: {name: probe, namespace: default}
spec: {selector: {app: probe}, ports: [{port: 80, targetPort: 8080}]}
`

func checkPodNetwork(e *environment) {
	file := filepath.Join(e.t.TempDir(), "probes.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, probeManifest, probeImage), 0o600); err != nil {
		e.t.Fatal(err)
	}
	e.kubectl("apply", "-f", file)
	e.kubectl("rollout", "status", "daemonset/probe", "--timeout=120s")
	pods := strings.Fields(e.kubectl("get", "pods", "-l", "app=probe", "-o", `jsonpath={range .items[*]}{.metadata.name}={.status.podIP}={.spec.nodeName} {end}`))
	if len(pods) != 2 {
		e.t.Fatalf("probes on %d nodes, want the 2 workers: %v", len(pods), pods)
	}
	first, second := strings.Split(pods[0], "="), strings.Split(pods[1], "=")
	if got := e.kubectl("exec", first[0], "--", "/probe", "get", "http://"+second[1]+":8080/hostname"); !strings.Contains(got, second[0]) {
		e.t.Errorf("by address: got %q, want %s", got, second[0])
	}
	e.waitUntil("by name", time.Minute, func() error {
		r := e.tryKubectl("exec", second[0], "--", "/probe", "get", "http://probe.default.svc.cluster.local/hostname")
		if r.code != 0 || !strings.Contains(r.out, "probe-") {
			return errors.New(r.err + r.out)
		}
		return nil
	})
	if got := e.kubectl("logs", second[0]); got == "" {
		e.t.Error("kubectl logs prints nothing")
	}
	if r := e.tryKubectl("exec", first[0], "--", "/probe", "get", "http://169.254.169.254/latest/meta-data/"); r.code == 0 {
		e.t.Error("a pod reached the metadata service")
	}
	if r := e.tryKubectl("exec", first[0], "--", "/probe", "get", e.joinEndpoint()+"/healthz"); !strings.Contains(r.err+r.out, "refused") {
		e.t.Errorf("a pod is not refused by the join endpoint: exit status %d: %s%s", r.code, r.out, r.err)
	}
	if os.Getenv("SLIPWAY_LONG") != "" {
		checkNetworkPolicy(e, first, second)
		checkHostPort(e, first[2])
	}
}

// probeImage is the reference with which machines pull the test image.
const probeImage = "198.18.0.1:5000/localhost/slipway/probe:v1.0.0"

func writeData(e *environment) {
	e.kubectl("create", "configmap", "survivor", "--from-literal=answer=42")
}

func checkData(e *environment) {
	e.t.Helper()
	if got := e.kubectl("get", "configmap", "survivor", "-o", "jsonpath={.data.answer}"); got != "42" {
		e.t.Fatalf("the ConfigMap contains %q, want 42", got)
	}
}

// listMachines returns the slots of the running machines of a role, by ID.
func (e *environment) listMachines(role string) map[string]string {
	e.t.Helper()
	out, err := ec2.NewFromConfig(e.aws).DescribeInstances(e.t.Context(), &ec2.DescribeInstancesInput{Filters: []ec2types.Filter{
		{Name: aws.String("tag:slipway.dev/cluster"), Values: []string{clusterName}},
		{Name: aws.String("tag:slipway.dev/role"), Values: []string{role}},
		{Name: aws.String("instance-state-name"), Values: []string{"running"}},
	}})
	if err != nil {
		e.t.Fatal(err)
	}
	found := map[string]string{}
	for _, r := range out.Reservations {
		for _, i := range r.Instances {
			found[*i.InstanceId] = ""
			for _, tag := range i.Tags {
				if *tag.Key == "slipway.dev/etcd-slot" {
					found[*i.InstanceId] = *tag.Value
				}
			}
		}
	}
	return found
}

// listVolumes returns, by slot, the ID of the etcd volume and of the instance that it is attached
// to.
func (e *environment) listVolumes() map[string][2]string {
	e.t.Helper()
	out, err := ec2.NewFromConfig(e.aws).DescribeVolumes(e.t.Context(), &ec2.DescribeVolumesInput{Filters: []ec2types.Filter{
		{Name: aws.String("tag:slipway.dev/cluster"), Values: []string{clusterName}}, {Name: aws.String("tag-key"), Values: []string{"slipway.dev/etcd-slot"}},
	}})
	if err != nil {
		e.t.Fatal(err)
	}
	found := map[string][2]string{}
	for _, v := range out.Volumes {
		at := ""
		if len(v.Attachments) > 0 {
			at = *v.Attachments[0].InstanceId
		}
		for _, tag := range v.Tags {
			if *tag.Key == "slipway.dev/etcd-slot" {
				found[*tag.Value] = [2]string{*v.VolumeId, at}
			}
		}
	}
	return found
}

func (e *environment) terminate(ids ...string) {
	e.t.Helper()
	if r := e.runProgram("aws", append([]string{"ec2", "terminate-instances", "--instance-ids"}, ids...)...); r.code != 0 {
		e.t.Fatal(r.err)
	}
}

// watchAvailability calls the API through the load balancer until stop is called. stop returns the
// longest time without a response.
func (e *environment) watchAvailability() (stop func() time.Duration) {
	var halt atomic.Bool
	done := make(chan time.Duration)
	go func() {
		longest, last := time.Duration(0), time.Now()
		for !halt.Load() {
			err := e.runKubectlQuietly("get", "--raw=/readyz", "--request-timeout=3s")
			longest = max(longest, time.Since(last)) // includes the time of a slow response
			if err == nil {
				last = time.Now()
			}
			time.Sleep(200 * time.Millisecond)
		}
		done <- longest
	}()
	return func() time.Duration { halt.Store(true); return <-done }
}

func loseControlPlane(e *environment) {
	before := e.listVolumes()
	var victim, slot string
	for id, s := range e.listMachines("control-plane") {
		victim, slot = id, s
	}
	stop := e.watchAvailability()
	e.terminate(victim)
	e.waitUntil("a replacement has the volume", 3*time.Minute, func() error {
		if at := e.listVolumes()[slot]; at[0] != before[slot][0] || at[1] == "" || at[1] == victim {
			return fmt.Errorf("slot %s: volume %v, before %v", slot, at, before[slot])
		}
		return nil
	})
	e.waitHealthy(5 * time.Minute)
	if away := stop(); away > 10*time.Second {
		e.t.Errorf("the API was unavailable for %s, want at most 10 s", away)
	} else {
		e.t.Logf("the API was unavailable for at most %s", away)
	}
	checkData(e)
}

func loseWorker(e *environment) {
	skipUnlessLong(e.t)
	for id := range e.listMachines("worker") {
		e.terminate(id)
		break
	}
	time.Sleep(2 * time.Second)
	e.waitHealthy(5 * time.Minute)
	names, err := e.readyNodes()
	if err != nil || len(names) != 5 {
		e.t.Fatalf("%d Ready nodes, want 5: %v %v", len(names), names, err)
	}
	checkData(e)
}

func loseAllControlPlanes(e *environment) {
	var ids []string
	for id := range e.listMachines("control-plane") {
		ids = append(ids, id)
	}
	e.terminate(ids...)
	time.Sleep(2 * time.Second)
	e.waitHealthy(8 * time.Minute)
	checkData(e)
}
