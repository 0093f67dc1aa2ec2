// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// TestComponentsSeeOnlyTheirOwnKeys: the pod of each component mounts the directory of its own keys, and of no others.
// Seen to fail when all mounted one directory: the scheduler read the key that signs tokens of service accounts.
func TestComponentsSeeOnlyTheirOwnKeys(t *testing.T) {
	files, err := kube.StaticPods(config())
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 3 {
		t.Fatalf("%d static pods", len(files))
	}
	for _, f := range files {
		var pod corev1.Pod
		if err := yaml.Unmarshal(f.Body, &pod); err != nil {
			t.Fatal(err)
		}
		own := kube.ComponentDir(pod.Name)
		checkUser(t, pod)
		var mounted []string
		for _, v := range pod.Spec.Volumes {
			mounted = append(mounted, v.HostPath.Path)
			at := v.HostPath.Path + "/"
			isAbove := strings.HasPrefix(own, at)
			if isAbove || strings.HasPrefix(at, "/run/slipway/") && at != own+"/" && at != kube.SecretDir+"/" {
				t.Errorf("%s sees %s", pod.Name, v.HostPath.Path)
			}
			if v.HostPath.Path == kube.SecretDir && pod.Name != kube.APIServer {
				t.Errorf("%s sees the key that encrypts Secrets", pod.Name)
			}
			if v.HostPath.Path == kube.ConfigDir && pod.Name != kube.APIServer {
				t.Errorf("%s sees the configuration of the others", pod.Name)
			}
		}
		paths := regexp.MustCompile(`/run/slipway/[^\s"]*`).FindAllString(string(f.Body), -1)
		for _, at := range paths {
			if at != own && path.Dir(at) != own && !strings.HasPrefix(at, kube.SecretDir) {
				t.Errorf("%s reads %s, outside of its directory", pod.Name, at)
			}
		}
		if !slices.Contains(mounted, own) || len(paths) < 3 {
			t.Errorf("%s mounts %s and names %s", pod.Name, mounted, paths)
		}
	}
}

// TestControllerManagerWithoutKey: with serviceAccountTokenSecrets Disabled, the flag is set and names no key, so that only the
// API server signs tokens. The check of kube-bench (1.3.4) asks for the flag alone.
func TestControllerManagerWithoutKey(t *testing.T) {
	c := config()
	const key = "/run/slipway/kube-controller-manager/service-account.key"
	for setting, want := range map[string]string{"": key, v1alpha1.TokenSecretsEnabled: key, v1alpha1.TokenSecretsDisabled: ""} {
		c.ControllerManagerSettings.ServiceAccountTokenSecrets = setting
		got, found := flag(kube.ControllerManagerFlags(c), "service-account-private-key-file")
		if !found || got != want || c.HasSigningKey() != (want != "") {
			t.Errorf("serviceAccountTokenSecrets %q: the controller manager signs with %q (%t), want %q", setting, got, found, want)
		}
		if credentials, _ := flag(kube.ControllerManagerFlags(c), "use-service-account-credentials"); credentials != "true" {
			t.Errorf("serviceAccountTokenSecrets %q: controllers have no accounts of their own", setting)
		}
	}
}

// checkUser checks that the pod of a component runs as a user of its own, which is nobody else's and not root, with no
// capability but that of the program. Seen to fail when all ran as root.
func checkUser(t *testing.T, pod corev1.Pod) {
	t.Helper()
	uid := int64(kube.UserID(pod.Name))
	for _, other := range kube.StaticPodNames() {
		if uid < 1000 || other != pod.Name && kube.UserID(other) == int(uid) {
			t.Errorf("%s runs as user %d, and %s as %d", pod.Name, uid, other, kube.UserID(other))
		}
	}
	want := corev1.PodSecurityContext{RunAsUser: &uid, RunAsGroup: &uid, RunAsNonRoot: new(true)}
	if diff := cmp.Diff(&want, pod.Spec.SecurityContext); diff != "" {
		t.Errorf("%s: %s", pod.Name, diff)
	}
	c := pod.Spec.Containers[0].SecurityContext
	if c.RunAsUser != nil || *c.AllowPrivilegeEscalation || !slices.Contains(c.Capabilities.Drop, "ALL") {
		t.Errorf("%s has the security context %+v", pod.Name, c)
	}
	var capabilities []corev1.Capability
	if pod.Name == kube.APIServer { // upstream's program has it as a file capability, and is not executed without
		capabilities = []corev1.Capability{"NET_BIND_SERVICE"}
	}
	if !slices.Equal(c.Capabilities.Add, capabilities) {
		t.Errorf("%s has the capabilities %v, want %v", pod.Name, c.Capabilities.Add, capabilities)
	}
}

// TestContainersHaveNoRawSockets: a container that asks for nothing cannot forge packets. containerd's own
// specification was seen to give it NET_RAW.
func TestContainersHaveNoRawSockets(t *testing.T) {
	var spec struct {
		Process struct{ Capabilities map[string][]string }
		Mounts  []struct{ Destination string }
		Linux   struct{ MaskedPaths, ReadonlyPaths []string }
	}
	if err := json.Unmarshal(kube.RuntimeSpec(), &spec); err != nil {
		t.Fatal(err)
	}
	for _, set := range []string{"bounding", "effective", "permitted"} {
		have := spec.Process.Capabilities[set]
		if slices.Contains(have, "CAP_NET_RAW") || !slices.Contains(have, "CAP_NET_BIND_SERVICE") || len(have) != 13 {
			t.Errorf("capabilities %s: %s", set, have)
		}
	}
	if len(spec.Mounts) < 7 || !slices.Contains(spec.Linux.MaskedPaths, "/proc/kcore") || !slices.Contains(spec.Linux.ReadonlyPaths, "/proc/sys") {
		t.Errorf("the specification lacks what containerd's has: %+v", spec)
	}
	if text := kube.ContainerdConfig("pause"); !strings.Contains(text, `base_runtime_spec = "`+kube.RuntimeSpecPath+`"`) {
		t.Errorf("containerd does not use the specification:\n%s", text)
	}
}
