// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
)

// TestUbuntu creates a cluster of one machine with Ubuntu 24.04, which becomes Ready and runs a pod. No test builds the
// image, because that needs Ubuntu's servers: run slipway region image --os ubuntu-24.04 before.
func TestUbuntu(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	e.requireUbuntuImage()
	e.runSteps(t, []step{
		{"a cluster of one machine with Ubuntu", createUbuntuMachine},
		{"its node is Ready", checkUbuntuNode},
		{"pods run and ask the resolver of the VPC", checkUbuntuPods},
		{"systemd waits for the kubelet when it shuts down", checkShutdownDelay},
		{"delete leaves nothing", deleteCluster},
	})
}

// requireUbuntuImage skips the test if nobody has built the image.
func (e *environment) requireUbuntuImage() {
	e.t.Helper()
	const name = "/aws/service/canonical/ubuntu/server/24.04/stable/current/amd64/hvm/ebs-gp3/ami-id"
	out, err := ssm.NewFromConfig(e.aws).GetParameter(e.t.Context(), &ssm.GetParameterInput{Name: aws.String(name)})
	if err != nil {
		e.t.Fatal(err)
	}
	file := filepath.Join(e.cache, "image", aws.ToString(out.Parameter.Value), "image.json")
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		e.t.Skip("SKIPPED: not built: slipway region image --os ubuntu-24.04")
	}
}

func createUbuntuMachine(e *environment) {
	body, err := os.ReadFile("../../examples/one-machine.yaml")
	if err != nil {
		e.t.Fatal(err)
	}
	text := strings.ReplaceAll(string(body), "one-machine", clusterName)
	text = strings.Replace(text, "  role: ControlPlane\n", "  role: ControlPlane\n  image: ubuntu-24.04\n", 1)
	file := filepath.Join(e.t.TempDir(), "cluster.yaml")
	writeFile(e.t, file, text)
	e.createFrom(file, 8*time.Minute)
}

func checkUbuntuNode(e *environment) {
	names, err := e.readyNodes()
	if err != nil || len(names) != 1 {
		e.t.Fatalf("%d Ready nodes, want 1: %v %v", len(names), names, err)
	}
	image := e.kubectl("get", "nodes", "-o", "jsonpath={.items[0].status.nodeInfo.osImage}")
	if !strings.HasPrefix(image, "Ubuntu 24.04") {
		e.t.Errorf("the node runs %q, want Ubuntu 24.04", image)
	}
	_, machine := e.findAPIAddress()
	e.t.Logf("failed units: %s", e.mustRunInMachine(machine, "systemctl --failed --no-legend --plain"))
}

// checkUbuntuPods: pods cannot reach the stub of systemd-resolved, which the machine's programs ask.
func checkUbuntuPods(e *environment) {
	e.checkPodRuns()
	_, machine := e.findAPIAddress()
	for script, want := range map[string]string{
		"readlink -f /etc/resolv.conf":                                             "/run/systemd/resolve/stub-resolv.conf",
		"grep -c '^nameserver 127' /proc/$(pgrep -o coredns)/root/etc/resolv.conf": "0",
	} {
		out, _ := e.runInMachine(machine, script) // grep ends with 1 if it finds nothing
		if got := strings.TrimSpace(out); got != want {
			e.t.Errorf("%s: %q, want %q", script, got, want)
		}
	}
}

// checkShutdownDelay: a package of Ubuntu limits the delay of a shutdown to 30 s, and the kubelet needs 60 s.
func checkShutdownDelay(e *environment) {
	_, machine := e.findAPIAddress()
	const property = "busctl get-property org.freedesktop.login1 /org/freedesktop/login1 org.freedesktop.login1.Manager InhibitDelayMaxUSec"
	if got := strings.TrimSpace(e.mustRunInMachine(machine, property)); got != "t 60000000" {
		e.t.Errorf("logind delays a shutdown by %q µs, want 60 s", got)
	}
	if got := e.mustRunInMachine(machine, "systemd-inhibit --list --no-legend"); !strings.Contains(got, "kubelet") {
		e.t.Errorf("the kubelet does not delay a shutdown:\n%s", got)
	}
}
