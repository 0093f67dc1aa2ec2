// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"cmp"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// provisionersPod returns a pod like those with which the provisioner of local volumes makes and deletes directories.
func provisionersPod() *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "helper-pod-create-"},
		Spec: corev1.PodSpec{
			ServiceAccountName: "local-path-provisioner",
			NodeName:           "ip-10-0-0-1",
			Containers:         []corev1.Container{{Name: "helper-pod", Image: "busybox", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}}},
			Volumes: []corev1.Volume{{
				Name:         "data",
				VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/var/lib/local-volumes/"}},
			}},
		},
	}
}

// TestProvisionerOfLocalVolumesIsLimited: the token of the provisioner starts pods that mount the directory of the volumes, as the
// provisioner does, and none that reaches anything else of a machine. Without the admission policy this was seen to succeed.
func TestProvisionerOfLocalVolumesIsLimited(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	l := newAddonLab(t, "local-volumes.yaml")
	config, err := clientcmd.BuildConfigFromFlags("", l.kubeconfigOf("local-path-storage", "local-path-provisioner"))
	l.check(err)
	api, err := kubernetes.NewForConfig(config)
	l.check(err)
	create := func(namespace string, change func(*corev1.Pod)) error {
		pod := provisionersPod()
		change(pod)
		_, err := api.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})

		return err
	}
	path := func(path string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Volumes[0].HostPath.Path = path }
	}
	l.await("the policy is in force", func() error {
		err := create("local-path-storage", path("/"))
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			return nil
		}

		return cmp.Or(err, errors.New("a pod that mounts / is not refused"))
	})

	l.check(create("local-path-storage", func(*corev1.Pod) {}))
	yes := true
	for what, change := range map[string]func(*corev1.Pod){
		"mount the root of a machine":               path("/"),
		"mount a directory next to that of volumes": path("/var/lib/local-volumes-2"),
		"mount the keys of a machine":               path("/var/lib/local-volumes/../../../etc/kubernetes"),
		"use the network of a machine":              func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		"see the processes of a machine":            func(p *corev1.Pod) { p.Spec.HostPID = true },
		"be privileged":                             func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: &yes} },
		"be privileged while it starts": func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "busybox", SecurityContext: &corev1.SecurityContext{Privileged: &yes}}}
		},
		"get a capability": func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_ADMIN"}}}
		},
	} {
		if err := create("local-path-storage", change); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			t.Errorf("the provisioner's pod can %s: %v", what, err)
		}
	}
	if err := create("default", func(*corev1.Pod) {}); !apierrors.IsForbidden(err) {
		t.Errorf("the provisioner can start a pod in another namespace: %v", err)
	}
}
