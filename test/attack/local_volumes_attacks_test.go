// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// container returns a change of the only container of a pod.
func container(change func(*corev1.Container)) func(*corev1.Pod) {
	return func(p *corev1.Pod) { change(&p.Spec.Containers[0]) }
}

// hostPath returns a change of the directory that a pod mounts.
func hostPath(path string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Volumes[0].HostPath.Path = path }
}

// hostilePods are changes of the provisioner's pod with which it would reach more than the directory of one volume.
func hostilePods() map[string]func(*corev1.Pod) {
	yes := true
	execute := &corev1.LifecycleHandler{Exec: &corev1.ExecAction{Command: []string{"ln", "-s", "/", localVolumes + "link"}}}
	directory := func(path string) func(*corev1.Pod) {
		return container(func(c *corev1.Container) { c.Args[1], c.Env[0].Value = path, path })
	}

	return map[string]func(*corev1.Pod){
		"mount the root of a machine":               hostPath("/"),
		"mount a directory next to that of volumes": hostPath("/var/lib/local-volumes-2"),
		"mount the keys of a machine":               hostPath("/var/lib/local-volumes/../../../etc/kubernetes"),
		"mount a link in the directory of volumes":  hostPath("/var/lib/local-volumes/link"),
		"mount a link that a pod made in a volume":  hostPath(localDirectory + "/link"),
		"mount a volume of another namespace":       hostPath(localDirectory),
		"mount another socket of the machine":       func(p *corev1.Pod) { *p.Spec.Volumes[0].HostPath.Type = corev1.HostPathSocket },
		"mount a token": func(p *corev1.Pod) {
			p.Spec.Volumes[1].VolumeSource = corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
				Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "setup"}}},
			}}
		},
		"mount a script of its choice": func(p *corev1.Pod) { p.Spec.Volumes[1].ConfigMap.Items[0].Key = "helperPod.yaml" },
		"mount one more volume": func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "more", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		},
		"mount the volumes over its programs":    container(func(c *corev1.Container) { c.VolumeMounts[1].MountPath = "/bin" }),
		"mount a part of the volumes":            container(func(c *corev1.Container) { c.VolumeMounts[1].SubPath = "link" }),
		"make a file with the messages of a pod": container(func(c *corev1.Container) { c.TerminationMessagePath = localVolumes + "file" }),
		"run a command":                          container(func(c *corev1.Container) { c.Command = []string{"ln", "-s", "/", localVolumes + "link"} }),
		"run a command with the script":          container(func(c *corev1.Container) { c.Command = []string{"/bin/sh", "-c", "ln -s / " + localVolumes + "link"} }),
		"run the script that deletes":            container(func(c *corev1.Container) { c.Command[1] = "/script/teardown" }),
		"run a command after it has started":     container(func(c *corev1.Container) { c.Lifecycle = &corev1.Lifecycle{PostStart: execute} }),
		"run a command as a probe": container(func(c *corev1.Container) {
			c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: execute.Exec}}
		}),
		"run in a directory of its choice": container(func(c *corev1.Container) { c.WorkingDir = localDirectory }),
		"run another image":                container(func(c *corev1.Container) { c.Image = "example.com/busybox:1.35.0" }),
		"run a library of its choice":      container(func(c *corev1.Container) { c.Env = append(c.Env, corev1.EnvVar{Name: "LD_PRELOAD", Value: "/x"}) }),
		"run with the environment of a Secret": container(func(c *corev1.Container) {
			c.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{}}}
		}),
		"run with more arguments":              container(func(c *corev1.Container) { c.Args = append(c.Args, "-x") }),
		"change a directory of another volume": directory(localVolumes + "pvc-00000000-0000-0000-0000-000000000000_demo_notes"),
		"change a directory in a volume":       directory(localDirectory + "/link"),
		"change a directory above the volumes": directory(localDirectory + "/../../log"),
		"change a directory elsewhere":         directory("/etc/" + localVolume + "_demo_notes"),
		"change a directory that it does not say": container(func(c *corev1.Container) {
			c.Env[0].Value = localVolumes + "pvc-00000000-0000-0000-0000-000000000000_demo_notes"
		}),
		"use the network of a machine":   func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		"see the processes of a machine": func(p *corev1.Pod) { p.Spec.HostPID = true },
		"reach the API server":           func(p *corev1.Pod) { p.Labels = map[string]string{"app": localVolumesAccount} },
		"get a token":                    func(p *corev1.Pod) { p.Spec.AutomountServiceAccountToken = &yes },
		"choose its machine by labels":   func(p *corev1.Pod) { p.Spec.NodeName = "" },
		"use another runtime":            func(p *corev1.Pod) { p.Spec.RuntimeClassName = new("unconfined") },
		"change a setting of the kernel": func(p *corev1.Pod) {
			p.Spec.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: "kernel.shm_rmid_forced", Value: "1"}}}
		},
		"be privileged": container(func(c *corev1.Container) {
			c.SecurityContext = &corev1.SecurityContext{Privileged: &yes}
		}),
		"be privileged while it starts": func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "first", Image: "busybox", SecurityContext: &corev1.SecurityContext{Privileged: &yes}}}
		},
		"run one more container": func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "second", Image: p.Spec.Containers[0].Image})
		},
		"get a capability": container(func(c *corev1.Container) {
			c.SecurityContext.Capabilities.Add = append(c.SecurityContext.Capabilities.Add, "SYS_ADMIN")
		}),
		"keep the usual capabilities": container(func(c *corev1.Container) { c.SecurityContext.Capabilities.Drop = nil }),
		"run without a filter of system calls": container(func(c *corev1.Container) {
			c.SecurityContext.SeccompProfile.Type = corev1.SeccompProfileTypeUnconfined
		}),
	}
}

// hostileVolumes are changes of the provisioner's PersistentVolume with which a pod would reach more than its own directory.
func hostileVolumes() map[string]func(*corev1.PersistentVolume) {
	path := func(path string) func(*corev1.PersistentVolume) {
		return func(v *corev1.PersistentVolume) { v.Spec.HostPath.Path = path }
	}
	source := func(s corev1.PersistentVolumeSource) func(*corev1.PersistentVolume) {
		return func(v *corev1.PersistentVolume) { v.Spec.PersistentVolumeSource = s }
	}

	return map[string]func(*corev1.PersistentVolume){
		"the root of a machine":       path("/"),
		"the keys of a machine":       path("/etc/kubernetes"),
		"all volumes":                 path(localVolumes),
		"a link among the volumes":    path(localVolumes + "link"),
		"a link in a volume":          path(localDirectory + "/link"),
		"the volume of another claim": path(localVolumes + "pvc-00000000-0000-0000-0000-000000000000_demo_notes"),
		"a volume of another name":    func(v *corev1.PersistentVolume) { v.Name = "pvc-00000000-0000-0000-0000-000000000000" },
		"a volume for another claim":  func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.Namespace = "attacker" },
		"a volume for another claim's": func(v *corev1.PersistentVolume) {
			v.Spec.ClaimRef.UID = types.UID("00000000-0000-0000-0000-000000000000")
		},
		"a volume for any claim": func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil },
		"a link, by the name of its claim": func(v *corev1.PersistentVolume) {
			v.Spec.ClaimRef.Name = "notes/link"
			v.Spec.HostPath.Path = localDirectory + "/link"
		},
		"a local directory of a machine":   source(corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: "/etc"}}),
		"a local file system of a machine": source(corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: localDirectory, FSType: new("ext4")}}),
		"a volume of a driver":             source(corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "ebs.csi.aws.com", VolumeHandle: "vol-0"}}),
		"a share of another server":        source(corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "192.0.2.1", Path: "/"}}),
		"a socket of a machine":            func(v *corev1.PersistentVolume) { *v.Spec.HostPath.Type = corev1.HostPathSocket },
		"a device of a machine":            func(v *corev1.PersistentVolume) { *v.Spec.VolumeMode = corev1.PersistentVolumeBlock },
		"a volume with options for mount":  func(v *corev1.PersistentVolume) { v.Spec.MountOptions = []string{"suid"} },
		"a volume with an annotation of it": func(v *corev1.PersistentVolume) {
			v.Annotations = map[string]string{corev1.MountOptionAnnotation: "suid"}
		},
		"a volume that a pod empties": func(v *corev1.PersistentVolume) {
			v.Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRecycle
		},
	}
}
