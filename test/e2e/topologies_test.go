// SPDX-License-Identifier: Apache-2.0

package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// TestPublic creates examples/public.yaml, whose machines have public addresses and no NAT gateway.
func TestPublic(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	e.runSteps(t, []step{
		{"up", func(e *environment) {
			e.runSlipway("state", "init", "--yes")
			e.createExample("public")
			e.runSlipway("apply", clusterName, "--yes")
			e.waitHealthy(10 * time.Minute)
			e.exportKubeconfig()
			if names, err := e.readyNodes(); err != nil || len(names) != 5 {
				e.t.Fatalf("%d Ready nodes, want 5: %v %v", len(names), names, err)
			}
		}},
		{"data is written", writeData},
		{"data is there", checkData},
		{"delete leaves nothing", deleteCluster},
	})
}

// TestIsolated creates examples/isolated.yaml directly and with CloudFormation. Its VPC has endpoints of AWS's services and
// no way to the internet, so its API is used from one of its machines.
func TestIsolated(t *testing.T) {
	skipUnlessLong(t)
	e := newEnvironment(t)
	e.runSlipway("state", "init", "--yes")
	for _, via := range []string{"direct", "cloudformation"} {
		e.runSteps(t, []step{
			{"up, " + via, func(e *environment) { e.createIsolated(via) }},
			{"delete leaves nothing, " + via, func(e *environment) {
				e.runSlipway("delete", "cluster", clusterName, "--destroy-data", "--yes")
				if left := e.listTagged(); len(left) > 0 {
					e.t.Errorf("left behind:\n%s", strings.Join(left, "\n"))
				}
			}},
		})
	}
}

// createExample writes an example into the state store, with the name of the tests' cluster and the mirror of the local region.
func (e *environment) createExample(name string) { e.createExampleWith(name, "") }

// createExampleWith is createExample with the field spec.assets as YAML; empty: that of the catalogue.
func (e *environment) createExampleWith(name, assets string) {
	e.t.Helper()
	body, err := os.ReadFile("../../examples/" + name + ".yaml")
	if err != nil {
		e.t.Fatal(err)
	}
	text := strings.Replace(string(body), "\n  name: "+name+"\n", "\n  name: "+clusterName+"\n", 1)
	text = regexp.MustCompile(`(?m)^  assets:\n(    .*\n)+`).ReplaceAllString(text, assets)
	file := filepath.Join(e.t.TempDir(), name+".yaml")
	writeFile(e.t, file, text)
	e.runSlipway("create", "-f", file, "--yes")
}

// createIsolated creates the cluster and applies it.
func (e *environment) createIsolated(via string) {
	e.t.Helper()
	e.createExample("isolated")
	e.applyIsolated(via)
}

// applyIsolated applies the cluster, and waits for its nodes.
func (e *environment) applyIsolated(via string) {
	e.t.Helper()
	begin := time.Now()
	e.runSlipway("apply", clusterName, "--via", via, "--yes")
	e.exportKubeconfig()
	e.waitUntil("all nodes are Ready", 6*time.Minute, func() error {
		machines := slices.Sorted(maps.Keys(e.listMachines("worker")))
		if len(machines) == 0 {
			return errors.New("no worker runs")
		}
		names, err := e.readyNodesFrom(machines[0])
		if err != nil || len(names) != 5 {
			return fmt.Errorf("%d Ready nodes, want 5: %v %w", len(names), names, err)
		}
		return nil
	})
	e.t.Logf("COUNT isolated, %s: all nodes are Ready after %s", via, time.Since(begin).Round(time.Second))
}

// readyNodesFrom returns the names of Ready nodes. It asks the internal load balancer of the API from the network of a machine,
// at the port that is open for machines.
func (e *environment) readyNodesFrom(machine string) ([]string, error) {
	e.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", e.kubeconfig())
	if err != nil {
		return nil, err
	}
	dial := e.newMachineDialer(machine)
	config.Timeout = 10 * time.Second
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		return dial(ctx, network, net.JoinHostPort(host, "6443"))
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	list, err := client.CoreV1().Nodes().List(e.t.Context(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, n := range list.Items {
		if slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}) {
			names = append(names, n.Name)
		}
	}
	return names, nil
}
