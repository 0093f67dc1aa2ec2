// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// component is one control-plane component that runs as a static pod.
type component struct {
	name string
	args []string
	port int
	// healthPath is the URL path of the liveness and startup probes.
	healthPath string
	// cpu and memory are resource requests, such as 250m and 128Mi.
	cpu    string
	memory string
	mounts []hostMount
}

// hostMount mounts a directory of the host at the same path in the container.
type hostMount struct {
	path     string
	writable bool
}

func controlPlaneComponents(c Config) []component {
	mountsOf := func(component string, more ...hostMount) []hostMount {
		return append([]hostMount{{path: ComponentDir(component)}}, more...)
	}

	return []component{
		{
			name: APIServer,
			args: APIServerFlags(c),
			port: 6443,
			// A restart does not bring back an etcd member that is away, as while its volume is lost.
			healthPath: "/livez?exclude=etcd",
			cpu:        "250m",
			memory:     "512Mi",
			mounts: mountsOf(
				APIServer,
				hostMount{path: ConfigDir},
				hostMount{path: SecretDir},
				hostMount{path: LogDir, writable: true},
				hostMount{path: "/etc/ssl/certs"},
			),
		},
		{
			name:       ControllerManager,
			args:       ControllerManagerFlags(c),
			port:       10257,
			healthPath: "/healthz",
			cpu:        "200m",
			memory:     "128Mi",
			mounts:     mountsOf(ControllerManager, hostMount{path: "/etc/ssl/certs"}),
		},
		{
			name:       Scheduler,
			args:       SchedulerFlags(),
			port:       10259,
			healthPath: "/healthz",
			cpu:        "100m",
			memory:     "64Mi",
			mounts:     mountsOf(Scheduler),
		},
	}
}

// StaticPods returns the static pods of the control plane, to be written to the kubelet's
// staticPodPath.
func StaticPods(c Config) ([]File, error) {
	var out []File
	for _, part := range controlPlaneComponents(c) {
		body, err := yaml.Marshal(part.buildPod(c))
		if err != nil {
			return nil, fmt.Errorf("encode static pod %s: %w", part.name, err)
		}

		out = append(out, File{ConfigDir + "/manifests/" + part.name + ".yaml", body})
	}

	return out, nil
}

// StaticPodCommands returns the command line of each component that runs as a static pod, by name.
func StaticPodCommands(c Config) map[string][]string {
	out := map[string][]string{}
	for _, part := range controlPlaneComponents(c) {
		out[part.name] = append([]string{part.name}, part.args...)
	}

	return out
}

func (p component) buildPod(c Config) corev1.Pod {
	container := p.buildContainer(c)
	pod := corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name:      p.name,
			Namespace: "kube-system",
			Labels:    map[string]string{"component": p.name, "tier": "control-plane"},
		},
		Spec: corev1.PodSpec{
			HostNetwork:                   true,
			PriorityClassName:             "system-node-critical",
			Priority:                      new(int32(2000001000)),
			TerminationGracePeriodSeconds: new(int64(30)),
			SecurityContext: &corev1.PodSecurityContext{
				RunAsUser:    new(int64(UserID(p.name))),
				RunAsGroup:   new(int64(UserID(p.name))),
				RunAsNonRoot: new(true),
			},
		},
	}

	if p.name == APIServer && c.EtcdGeneration > 1 {
		// The kubelet restarts the pod when it changes: after a restoration of etcd, watch caches have newer data than etcd.
		pod.Annotations = map[string]string{"slipway.dev/etcd-generation": strconv.Itoa(c.EtcdGeneration)}
	}

	for i, m := range p.mounts {
		name := fmt.Sprintf("m%d", i)
		kind := corev1.HostPathDirectory
		if m.writable {
			kind = corev1.HostPathDirectoryOrCreate
		}

		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
			Name: name,
			VolumeSource: corev1.VolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: m.path, Type: &kind},
			},
		})

		container.VolumeMounts = append(
			container.VolumeMounts,
			corev1.VolumeMount{Name: name, MountPath: m.path, ReadOnly: !m.writable},
		)
	}

	pod.Spec.Containers = []corev1.Container{container}

	return pod
}

func (p component) buildContainer(c Config) corev1.Container {
	container := corev1.Container{
		Name:            p.name,
		Image:           c.Images[p.name],
		ImagePullPolicy: corev1.PullIfNotPresent,
		Command:         append([]string{p.name}, p.args...),
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse(p.cpu),
			corev1.ResourceMemory: resource.MustParse(p.memory),
		}},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			ReadOnlyRootFilesystem:   new(true),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		// The kubelet restarts the container if it is not healthy 4 minutes after its start, as kubeadm allows, or
		// unhealthy for 30 seconds later.
		StartupProbe:  p.httpProbe(p.healthPath, 120, 2),
		LivenessProbe: p.httpProbe(p.healthPath, 6, 5),
	}
	if p.name == APIServer {
		container.ReadinessProbe = p.httpProbe("/readyz", 3, 2)
		// The program in upstream's image has this file capability. The kernel executes it only with the capability, although
		// it does not bind a port below 1024 here.
		container.SecurityContext.Capabilities.Add = []corev1.Capability{"NET_BIND_SERVICE"}
	}

	return container
}

func (p component) httpProbe(path string, failures, period int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{
				Host:   "127.0.0.1",
				Path:   path,
				Port:   intstr.FromInt(p.port),
				Scheme: corev1.URISchemeHTTPS,
			},
		},
		FailureThreshold: failures,
		PeriodSeconds:    period,
		TimeoutSeconds:   15,
	}
}
