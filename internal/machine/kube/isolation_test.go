// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"encoding/json"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

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
		var mounted []string
		for _, v := range pod.Spec.Volumes {
			mounted = append(mounted, v.HostPath.Path)
			at := v.HostPath.Path + "/"
			isAbove := strings.HasPrefix(own, at)
			if isAbove || strings.HasPrefix(at, kube.PKIDir) && at != own+"/" {
				t.Errorf("%s sees %s", pod.Name, v.HostPath.Path)
			}
			if v.HostPath.Path == kube.SecretDir && pod.Name != kube.APIServer {
				t.Errorf("%s sees the key that encrypts Secrets", pod.Name)
			}
		}
		paths := regexp.MustCompile(kube.PKIDir+`[^\s"]*`).FindAllString(string(f.Body), -1)
		for _, at := range paths {
			if at != own && path.Dir(at) != own {
				t.Errorf("%s reads %s, outside of its directory", pod.Name, at)
			}
		}
		if !slices.Contains(mounted, own) || len(paths) < 3 {
			t.Errorf("%s mounts %s and names %s", pod.Name, mounted, paths)
		}
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
