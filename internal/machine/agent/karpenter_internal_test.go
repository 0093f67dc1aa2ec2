// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// karpenterLab is a control-plane machine with a list of launches, and an API server that knows Karpenter's kinds.
type karpenterLab struct {
	*launchLab

	task    *karpenterTask
	objects map[string]string // by path
	hasCRDs bool
	writes  int
	now     time.Time
}

func newKarpenterLab(t *testing.T) *karpenterLab {
	t.Helper()
	l := &karpenterLab{launchLab: newLaunchLab(t), objects: map[string]string{}, hasCRDs: true, now: time.Now()}
	server := httptest.NewServer(l)
	t.Cleanup(server.Close)
	l.agent.Now = func() time.Time { return l.now }
	l.agent.apiOpen.Store(true)
	l.task = newKarpenterTask(l.agent, kube.Client{Server: server.URL, HTTP: server.Client()})
	return l
}

// ServeHTTP stands for the API server.
func (l *karpenterLab) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	isKarpenter := strings.HasPrefix(r.URL.Path, nodePoolsPath) || strings.HasPrefix(r.URL.Path, nodeClassesPath)
	switch {
	case strings.HasPrefix(r.URL.Path, leasesPath):
		l.serveLease(w, r, body)
	case !isKarpenter || !l.hasCRDs:
		http.NotFound(w, r)
	case r.Method == http.MethodPatch:
		l.writes++
		l.objects[r.URL.Path] = string(body)
	case r.Method == http.MethodDelete:
		delete(l.objects, r.URL.Path)
	default:
		items := []string{}
		for path := range l.objects {
			if name, ok := strings.CutPrefix(path, r.URL.Path+"/"); ok {
				items = append(items, `{"metadata":{"name":"`+name+`"}}`)
			}
		}
		_, _ = io.WriteString(w, `{"items":[`+strings.Join(items, ",")+`]}`)
	}
}

// serveLease lets every machine be the leader.
func (*karpenterLab) serveLease(w http.ResponseWriter, r *http.Request, body []byte) {
	if r.Method == http.MethodGet {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write(body)
}

func (l *karpenterLab) run(want string) {
	l.t.Helper()
	err := l.task.run(l.t.Context())
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		l.t.Errorf("%v, want %q", err, want)
	}
}

// publish stores a signed list with pools.
func (l *karpenterLab) publish(serial int64, pools map[string]node.Pool) {
	l.t.Helper()
	list, _ := node.NewLaunches(node.LaunchesInput{Cluster: "demo", FirstSerial: serial, Current: pools})
	l.sign(l.agent.bundle.CAs[pki.KubernetesCA], list)
}

func (l *karpenterLab) checkObjects(want ...string) {
	l.t.Helper()
	var have []string
	for path := range l.objects {
		have = append(have, path[strings.LastIndex(path, "/v1/")+4:])
	}
	slices.Sort(have)
	if !slices.Equal(have, want) {
		l.t.Errorf("the objects are %v, want %v", have, want)
	}
}

func burstPool() node.Pool {
	return node.Pool{
		Launch:         node.Launch{UserData: "boot @@INTERNAL@@", Image: "ami-1"},
		Profile:        "demo.worker.us-east-1",
		Subnets:        []map[string]string{{"slipway.dev/address": "subnet/a"}},
		SecurityGroups: []map[string]string{{"slipway.dev/address": "security-group/worker"}},
		RootDevice:     "/dev/xvda",
		RootVolume:     v1alpha1.RootVolume{Type: "gp3", Size: 20, IOPS: 3000, Throughput: 125, EncryptionKey: "alias/slipway/demo"},
		HopLimit:       1,
		Tags:           map[string]string{"slipway.dev/cluster": "demo"},
		Architecture:   "amd64",
		MachineTypes:   []string{"m5.xlarge", "m5.large"},
		Spot:           true,
		NodeLabels:     map[string]string{"example.com/kind": "burst"},
		Taints:         []string{"example.com/only=burst:NoSchedule"},
		Kubelet:        v1alpha1.Kubelet{MaxPods: 110, KubeReserved: map[string]string{"cpu": "100m"}},
		Limits:         node.PoolLimits{Machines: 3, Disrupted: "1"},
	}
}

// TestKarpenterObjects: the elected machine writes both objects of each group from the signed list, with the names of the API that it
// has itself, and deletes those of groups that are no longer Karpenter's. Without the kinds it waits, and without a list it does nothing.
func TestKarpenterObjects(t *testing.T) {
	l := newKarpenterLab(t)
	l.stored = nil
	l.run("")
	l.publish(1, map[string]node.Pool{"burst": burstPool(), "spare": burstPool()})
	l.hasCRDs = false
	l.run("publish the channel of Karpenter")
	l.hasCRDs = true
	l.run("")
	l.checkObjects("ec2nodeclasses/burst", "ec2nodeclasses/spare", "nodepools/burst", "nodepools/spare")

	var class struct {
		Metadata struct{ Labels map[string]string }
		Spec     struct {
			AMIFamily, UserData, InstanceProfile string
			AMISelectorTerms                     []map[string]string
			MetadataOptions                      map[string]any
		}
	}
	if err := json.Unmarshal([]byte(l.objects[nodeClassesPath+"/burst"]), &class); err != nil {
		t.Fatal(err)
	}
	if s := class.Spec; s.UserData != "boot internal.example" || s.AMIFamily != "Custom" || s.AMISelectorTerms[0]["id"] != "ami-1" ||
		s.InstanceProfile != "demo.worker.us-east-1" || s.MetadataOptions["httpTokens"] != "required" || class.Metadata.Labels[karpenterLabel] != "burst" {
		t.Errorf("the EC2NodeClass is %+v", class)
	}
	for _, want := range []string{
		`"values":["on-demand","spot"]`, `"values":["m5.large","m5.xlarge"]`, `"limits":{"nodes":"3"}`, `"slipway.dev/group":"burst"`,
		`{"effect":"NoSchedule","key":"example.com/only","value":"burst"}`, `"expireAfter":"Never"`, `"budgets":[{"nodes":"1"}]`,
	} {
		if !strings.Contains(l.objects[nodePoolsPath+"/burst"], want) {
			t.Errorf("the NodePool lacks %s: %s", want, l.objects[nodePoolsPath+"/burst"])
		}
	}

	writes := l.writes
	l.run("")
	if l.writes != writes {
		t.Error("an unchanged list was applied again at once")
	}
	delete(l.objects, nodePoolsPath+"/burst")
	l.now = l.now.Add(2 * karpenterCheckInterval)
	l.run("")
	l.checkObjects("ec2nodeclasses/burst", "ec2nodeclasses/spare", "nodepools/burst", "nodepools/spare")
	l.publish(2, map[string]node.Pool{"burst": burstPool()})
	l.run("")
	l.checkObjects("ec2nodeclasses/burst", "nodepools/burst")
	l.publish(3, nil)
	l.run("")
	l.checkObjects()
	l.publish(2, map[string]node.Pool{"burst": burstPool()})
	l.run("somebody has restored an earlier list")
	l.checkObjects()
}
