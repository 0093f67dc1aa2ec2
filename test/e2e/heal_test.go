// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// runInMachine runs a shell script inside a machine.
func (e *environment) runInMachine(id, script string) (string, error) {
	return e.runInMachineFor(time.Minute, id, script)
}

// findInit returns the first process of a machine, as this computer counts.
func (e *environment) findInit(id string) (string, error) {
	body, err := os.ReadFile(filepath.Join(e.cache, "region", "instances", id, "pid.json"))
	if err != nil {
		return "", err
	}
	var processes struct {
		Init struct {
			PID int `json:"pid"`
		} `json:"init"`
	}
	if err := json.Unmarshal(body, &processes); err != nil || processes.Init.PID == 0 {
		return "", fmt.Errorf("%s has no process: %s %w", id, body, err)
	}
	return strconv.Itoa(processes.Init.PID), nil
}

// runInMachineFor is runInMachine for a script that takes at most limit. A script of nft gets the machine's network and this
// computer's programs: Debian's image for EC2 has no nft.
func (e *environment) runInMachineFor(limit time.Duration, id, script string) (string, error) {
	first, err := e.findInit(id)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(e.t.Context(), limit)
	defer cancel()
	namespaces := []string{"-t", first, "-m", "-u", "-i", "-n", "-p", "-C", "-r", "-w"}
	if strings.HasPrefix(script, "nft ") {
		namespaces = []string{"-t", first, "-n"}
	}
	cmd := exec.CommandContext(ctx, "nsenter", append(namespaces, "/bin/sh", "-c", script)...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), errors.Join(err, ctx.Err())
}

func (e *environment) mustRunInMachine(id, script string) string {
	e.t.Helper()
	out, err := e.runInMachine(id, script)
	if err != nil {
		e.t.Fatalf("in %s: %s: %v\n%s", id, script, err, out)
	}
	return out
}

// readReport returns the report that a machine's agent has published on its Node.
func (e *environment) readReport(id string) string {
	e.t.Helper()
	return e.tryKubectl("get", "nodes", "-o",
		`jsonpath={range .items[?(@.spec.providerID)]}{.spec.providerID}{" "}{.metadata.annotations.slipway\.dev/report}{"\n"}{end}`).lineWith(id)
}

// lineWith returns the line of the output that contains text.
func (r commandResult) lineWith(text string) string {
	for line := range strings.Lines(r.out) {
		if strings.Contains(line, text) {
			return line
		}
	}
	return ""
}

// damages are what the test changes on a control-plane machine, and how it sees that it was restored.
func damages() map[string][2]string {
	manifest := "/etc/kubernetes/manifests/kube-scheduler.yaml"
	unit := "/etc/systemd/system/kubelet.service"
	return map[string][2]string{
		"corrupted manifest": {"echo '{' >" + manifest, "grep -q 'name: kube-scheduler' " + manifest},
		"deleted unit":       {"rm " + unit + " && systemctl daemon-reload", "systemctl cat kubelet | grep -q Description=kubelet && systemctl is-active -q kubelet"},
		"kernel setting":     {"echo 0 >/proc/sys/net/ipv4/ip_forward", "grep -q 1 /proc/sys/net/ipv4/ip_forward"},
		"stopped containerd": {"systemctl stop containerd", "systemctl is-active -q containerd"},
		"mode of a key":      {"chmod 644 /run/slipway/kube-apiserver/apiserver.key", `test "$(stat -c %a /run/slipway/kube-apiserver/apiserver.key)" = 600`},
		"missing directory":  {"mv /etc/cni/net.d /etc/cni/old", "test -d /etc/cni/net.d && cp -an /etc/cni/old/. /etc/cni/net.d/"},
	}
}

// checkRestoration changes what the agent owns on a control-plane machine. All of it is right again within 15
// seconds, and reported.
func checkRestoration(e *environment) {
	var id string
	for machine := range e.listMachines("control-plane") {
		id = machine
	}
	for _, d := range damages() {
		e.mustRunInMachine(id, d[0])
	}
	begin := time.Now()
	for name, d := range damages() {
		e.waitUntil(name+" is restored", 15*time.Second, func() error {
			out, err := e.runInMachine(id, d[1])
			return errors.Join(err, textError(out))
		})
	}
	e.t.Logf("restored %d things after %s", len(damages()), time.Since(begin).Round(100*time.Millisecond))
	e.waitUntil("the restoration is reported", 30*time.Second, func() error {
		if report := e.readReport(id); !strings.Contains(report, "; restored at ") {
			return fmt.Errorf("the report of %s is %s", id, report)
		}
		return nil
	})
	journal := e.mustRunInMachine(id, "journalctl -u slipway-node --no-pager | grep 'restored it'")
	for _, want := range []string{"kube-scheduler.yaml", "kubelet.service", "sysctl net.ipv4.ip_forward", "systemd unit containerd", "apiserver.key", "/etc/cni/net.d"} {
		if !strings.Contains(journal, want) {
			e.t.Errorf("the journal does not mention %s:\n%s", want, journal)
		}
	}
	defer func() {
		if e.t.Failed() { // the reports do not say why a pod is not Ready
			e.tryKubectl("get", "pods", "-A", "-o", "wide")
			e.tryKubectl("-n", "kube-system", "logs", "-l", "k8s-app=kube-dns", "--tail=20", "--prefix")
		}
	}()
	e.waitHealthy(3 * time.Minute)
}

// textError returns the output of a failed check as an error.
func textError(out string) error {
	if out == "" {
		return nil
	}
	return errors.New(out)
}

// checkAPIRestart restarts all API servers at once, as crashes and changed settings do. No client may get 403 or see
// the Service kubernetes without endpoints (docs/design/0011-api-gate.md).
func checkAPIRestart(e *environment) {
	machines := e.listMachines("control-plane")
	var stop atomic.Bool
	var answers, empty atomic.Int64
	wrong := make(chan string, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() {
			out, err := e.askEndpoints()
			switch {
			case err == nil && out != "":
				answers.Add(1)
			case err == nil:
				empty.Add(1)
			case strings.Contains(out, "orbidden"):
				select {
				case wrong <- fmt.Sprintf("%q, %v", out, err):
				default:
				}
			}
			time.Sleep(50 * time.Millisecond)
		}
	}()
	signals := []string{"KILL"}
	if os.Getenv("SLIPWAY_LONG") != "" {
		signals = []string{"TERM", "KILL"}
	}
	for _, signal := range signals {
		for id := range machines {
			e.mustRunInMachine(id, "kill -"+signal+" $(pidof kube-apiserver)")
		}
		time.Sleep(3 * time.Second)
		e.waitHealthy(3 * time.Minute)
	}
	stop.Store(true)
	<-done
	select {
	case w := <-wrong:
		e.t.Errorf("a wrong answer while the API servers restarted: %s", w)
	default:
		e.t.Logf("%d answers, none forbidden", answers.Load())
	}
	if n := empty.Load(); n > 0 {
		e.t.Errorf("the Service kubernetes had no endpoint in %d answers while the API servers restarted", n)
	}
}

// askEndpoints asks the API through its load balancer for the endpoints of the Service kubernetes.
func (e *environment) askEndpoints() (string, error) {
	cmd := exec.Command(kubectlPath(filepath.Dir(e.cache)), "--kubeconfig", e.kubeconfig(), "--request-timeout=3s",
		"get", "endpointslice", "kubernetes", "-o", "jsonpath={.endpoints[*].addresses[*]}")
	cmd.Env = os.Environ()
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// logUnits logs the last lines of units of a machine if the test has failed.
func (e *environment) logUnits(machine string, units ...string) {
	e.t.Helper()
	if !e.t.Failed() {
		return
	}
	for _, unit := range units {
		out, err := e.runInMachine(machine, "systemctl status --no-pager -n 0 "+unit+"; journalctl --no-pager -n 60 -u "+unit)
		e.t.Logf("%s of %s: %v\n%s", unit, machine, err, out)
	}
}

// loseVolume takes the volume of one member away by force, and gives it back.
func loseVolume(e *environment) {
	volumes := e.listVolumes()
	slot := slices.Sorted(maps.Keys(volumes))[rand.IntN(len(volumes))]
	volume, machine := volumes[slot][0], volumes[slot][1]
	e.t.Logf("slot %s loses volume %s of machine %s", slot, volume, machine)
	defer e.logUnits(machine, "etcd", "slipway-node")
	if r := e.runProgram("aws", "ec2", "detach-volume", "--force", "--volume-id", volume); r.code != 0 {
		e.t.Fatal(r.err)
	}
	begin := time.Now()
	e.waitUntil("the machine reports its volume", 90*time.Second, func() error { // kubectl may wait 15 s for a server that ends, twice
		report := e.readReport(machine)
		if !strings.Contains(report, "the etcd volume "+volume+" is read-only") && !strings.Contains(report, "the etcd volume "+volume+" does not take writes") {
			return fmt.Errorf("the report of %s is %s", machine, report)
		}
		return nil
	})
	e.t.Logf("slot %s: the lost volume was reported after %s", slot, time.Since(begin).Round(100*time.Millisecond))
	e.waitUntil("the member is stopped", 30*time.Second, func() error {
		out, err := e.runInMachine(machine, "systemctl is-active etcd || true")
		if out != "inactive" && out != "failed" {
			return fmt.Errorf("etcd is %s: %w", out, err)
		}
		return nil
	})
	r := e.runProgram(e.slipway, "validate", "cluster", clusterName)
	if r.code == 0 || !strings.Contains(r.out+r.err, volume) {
		e.t.Errorf("validate (exit status %d) does not name the volume:\n%s%s", r.code, r.out, r.err)
	}
	if r := e.tryKubectl("create", "configmap", "while-a-volume-is-lost"); r.code != 0 {
		e.t.Errorf("a write while one member has no volume: %s", r.err)
	}
	if r := e.runProgram("aws", "ec2", "attach-volume", "--volume-id", volume, "--instance-id", machine, "--device", "/dev/xvdf"); r.code != 0 {
		e.t.Fatal(r.err)
	}
	e.waitHealthy(3 * time.Minute)
	checkData(e)
}
