// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// TestAPIServerOutlivesItsMember: the kubelet must not restart the API server because its etcd member is away, as while
// its volume is lost: a restart does not bring the member back, and each one waits longer.
func TestAPIServerOutlivesItsMember(t *testing.T) {
	pods, err := kube.StaticPods(config())
	if err != nil {
		t.Fatal(err)
	}

	for _, f := range pods {
		var pod corev1.Pod
		if err := yaml.Unmarshal(f.Body, &pod); err != nil {
			t.Fatal(err)
		}

		c := pod.Spec.Containers[0]
		isAPI := strings.HasSuffix(f.Path, "/kube-apiserver.yaml")
		if path := c.LivenessProbe.HTTPGet.Path; isAPI && path != "/livez?exclude=etcd" {
			t.Errorf("the liveness probe asks for %s", path)
		}

		if isAPI && c.ReadinessProbe.HTTPGet.Path != "/readyz" {
			t.Errorf("an API server without etcd is ready: %s", c.ReadinessProbe.HTTPGet.Path)
		}
	}
}

// TestRestartsAreSoon: controller manager and scheduler exit while their API server has no etcd. They must start again
// soon after it has, however often they have exited before. Kubelets before 1.35 reject the setting.
func TestRestartsAreSoon(t *testing.T) {
	for _, c := range []struct {
		version      string
		controlPlane bool
		want         string
	}{{"1.36.3", true, "20s"}, {"1.35.0", true, "20s"}, {"", true, "20s"}, {"1.34.9", true, ""}, {"1.36.3", false, ""}} {
		body, err := kube.KubeletConfig(kube.Config{KubernetesVersion: c.version, ControlPlane: c.controlPlane})
		if err != nil {
			t.Fatal(err)
		}

		var got struct {
			CrashLoopBackOff struct{ MaxContainerRestartPeriod string }
		}
		if err := yaml.Unmarshal(body, &got); err != nil {
			t.Fatal(err)
		}

		if period := got.CrashLoopBackOff.MaxContainerRestartPeriod; period != c.want {
			t.Errorf("%+v: %q", c, period)
		}
	}
}

// TestSlowStartsAreWaitedFor: a control plane may take 4 minutes to start, as kubeadm allows it. On machines with little
// time of their processors, 2 minutes were too short for API servers, and each restart began anew.
func TestSlowStartsAreWaitedFor(t *testing.T) {
	pods, err := kube.StaticPods(config())
	if err != nil {
		t.Fatal(err)
	}

	for _, f := range pods {
		var pod corev1.Pod
		if err := yaml.Unmarshal(f.Body, &pod); err != nil {
			t.Fatal(err)
		}

		probe := pod.Spec.Containers[0].StartupProbe
		if limit := probe.FailureThreshold * probe.PeriodSeconds; limit != 240 {
			t.Errorf("%s is restarted after %d s without a healthy answer, want 240", f.Path, limit)
		}
	}
}
