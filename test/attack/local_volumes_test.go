// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
)

const (
	localVolumesNamespace = "local-path-storage"
	localVolumesAccount   = "local-path-provisioner"
	localVolumes          = "/var/lib/local-volumes/"
	// The claim demo/notes, whose volume is below.
	localClaimUID  = "5b0e5d70-7d1c-4b8c-9d5f-0a1b2c3d4e5f"
	localVolume    = "pvc-" + localClaimUID
	localDirectory = localVolumes + localVolume + "_demo_notes"
	localNode      = "ip-10-0-0-1"
)

// provisionersPod returns a pod like that with which the provisioner of local volumes makes the directory of a claim.
func provisionersPod() *corev1.Pod {
	yes, no := true, false
	directory := corev1.HostPathDirectoryOrCreate

	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "helper-pod-create-" + localVolume},
		Spec: corev1.PodSpec{
			ServiceAccountName:           localVolumesAccount,
			AutomountServiceAccountToken: &no,
			NodeName:                     localNode,
			RestartPolicy:                corev1.RestartPolicyNever,
			PriorityClassName:            "system-node-critical",
			Tolerations:                  []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
			Containers: []corev1.Container{{
				Name:    "helper-pod",
				Image:   "docker.io/library/busybox:1.35.0",
				Command: []string{"/bin/sh", "/script/setup"},
				Args:    []string{"-p", localDirectory, "-s", "1024", "-m", "Filesystem", "-a", "create"},
				Env: []corev1.EnvVar{
					{Name: "VOL_DIR", Value: localDirectory}, {Name: "VOL_MODE", Value: "Filesystem"}, {Name: "VOL_SIZE_BYTES", Value: "1024"},
				},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: &no,
					ReadOnlyRootFilesystem:   &yes,
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"DAC_OVERRIDE", "FOWNER"}},
					SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
				},
				VolumeMounts: []corev1.VolumeMount{{Name: "script", MountPath: "/script"}, {Name: "data", MountPath: localVolumes}},
			}},
			Volumes: []corev1.Volume{
				{Name: "data", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: localVolumes, Type: &directory}}},
				{Name: "script", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
					LocalObjectReference: corev1.LocalObjectReference{Name: "local-path-config"},
					Items:                []corev1.KeyToPath{{Key: "setup", Path: "setup"}, {Key: "teardown", Path: "teardown"}},
				}}},
			},
		},
	}
}

// provisionersVolume returns a PersistentVolume like that which the provisioner makes for the claim.
func provisionersVolume() *corev1.PersistentVolume {
	directory := corev1.HostPathDirectoryOrCreate
	mode := corev1.PersistentVolumeFilesystem

	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: localVolume},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Ki")},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: localDirectory, Type: &directory}},
			ClaimRef:                      &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "demo", Name: "notes", UID: localClaimUID},
			StorageClassName:              "local-path",
			VolumeMode:                    &mode,
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "kubernetes.io/hostname", Operator: corev1.NodeSelectorOpIn, Values: []string{localNode}}},
			}}}},
		},
	}
}

// apiOf returns a client with the token of a service account.
func (l addonLab) apiOf(namespace, account string) kubernetes.Interface {
	l.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", l.kubeconfigOf(namespace, account))
	l.check(err)
	config.QPS = -1
	api, err := kubernetes.NewForConfig(config)
	l.check(err)

	return api
}

// refused reports whether the API server refused what an object is, or that somebody writes it.
func refused(err error) bool { return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) }

// TestProvisionerOfLocalVolumesIsLimited: the token of the provisioner starts pods that make or delete the directory of one volume
// with the channel's scripts, as the provisioner does, and none that runs anything else, or reaches anything else of a machine.
// Without the policies, and with those that allowed any command and any path below the directory, this was seen to succeed.
func TestProvisionerOfLocalVolumesIsLimited(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	l := newAddonLab(t, "local-volumes.yaml")
	api := l.apiOf(localVolumesNamespace, localVolumesAccount)
	create := func(api kubernetes.Interface, namespace string, change func(*corev1.Pod)) error {
		pod := provisionersPod()
		change(pod)
		_, err := api.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})

		return err
	}
	l.await("the policy is in force", func() error {
		if err := create(api, localVolumesNamespace, hostPath("/")); !refused(err) {
			return cmp.Or(err, errors.New("a pod that mounts / is not refused"))
		}

		return nil
	})
	for what, change := range hostilePods() {
		// Dry runs, so that a name that one attack has taken refuses no other.
		pod := provisionersPod()
		change(pod)
		_, err := api.CoreV1().Pods(localVolumesNamespace).Create(t.Context(), pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if !refused(err) {
			t.Errorf("the provisioner's pod can %s: %v", what, err)
		}
	}
	l.check(create(api, localVolumesNamespace, func(*corev1.Pod) {}))
	l.check(create(api, localVolumesNamespace, func(p *corev1.Pod) {
		p.Name = "helper-pod-delete-" + localVolume
		c := &p.Spec.Containers[0]
		c.Command[1], c.Args[7] = "/script/teardown", "delete"
	}))
	if err := create(api, "default", func(*corev1.Pod) {}); !apierrors.IsForbidden(err) {
		t.Errorf("the provisioner can start a pod in another namespace: %v", err)
	}
	// Nobody else can start a pod there that mounts something of a machine, such as a controller that makes pods.
	if err := create(l.api, localVolumesNamespace, func(p *corev1.Pod) { p.Name, p.Spec.Containers[0].Command = "other", nil }); !refused(err) {
		t.Errorf("another account can mount the volumes of a machine: %v", err)
	}
	l.checkProvisionersChanges(api)
}

// checkProvisionersChanges: the provisioner changes no pod, such as that which it runs in itself, and runs nothing in one.
func (l addonLab) checkProvisionersChanges(api kubernetes.Interface) {
	l.Helper()
	pods := api.CoreV1().Pods(localVolumesNamespace)
	name := "helper-pod-create-" + localVolume
	patch := []byte(`{"spec": {"containers": [{"name": "helper-pod", "image": "example.com/image"}]}}`)
	_, image := pods.Patch(l.Context(), name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	_, ephemeral := pods.UpdateEphemeralContainers(l.Context(), name, provisionersPod(), metav1.UpdateOptions{})
	run := api.CoreV1().RESTClient().Post().Namespace(localVolumesNamespace).Resource("pods").Name(name).SubResource("exec").Do(l.Context()).Error()
	_, script := api.CoreV1().ConfigMaps(localVolumesNamespace).Patch(l.Context(), "local-path-config", types.MergePatchType, []byte(`{"data": {"setup": ""}}`), metav1.PatchOptions{})
	for what, err := range map[string]error{
		"change the image of a pod": image, "add a container to a pod": ephemeral, "run a command in a pod": run, "change the scripts": script,
	} {
		if !refused(err) {
			l.Errorf("the provisioner can %s: %v", what, err)
		}
	}
}

// checkHostileVolumes checks that an account can make no PersistentVolume with one of the changes. create tries it.
func (l addonLab) checkHostileVolumes(
	account string,
	hostile map[string]func(*corev1.PersistentVolume),
	create func(func(*corev1.PersistentVolume)) error,
) {
	l.Helper()
	l.await("the policy is in force", func() error {
		if err := create(hostile["the root of a machine"]); !refused(err) {
			return cmp.Or(err, errors.New("a volume that is / is not refused"))
		}

		return nil
	})
	for what, change := range hostile {
		if err := create(change); !refused(err) {
			l.Errorf("%s can make a PersistentVolume of %s: %v", account, what, err)
		}
	}
}

// TestProvisionersVolumesAreLimited: the token of the provisioner makes a PersistentVolume of the directory that belongs to its
// claim, and no other; it changes and deletes none of anybody else. Without the policy this was seen to succeed.
func TestProvisionersVolumesAreLimited(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	l := newAddonLab(t, "local-volumes.yaml")
	volumes := l.apiOf(localVolumesNamespace, localVolumesAccount).CoreV1().PersistentVolumes()
	create := func(change func(*corev1.PersistentVolume)) error {
		v := provisionersVolume()
		change(v)
		_, err := volumes.Create(t.Context(), v, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})

		return err
	}
	hostile := hostileVolumes()
	l.checkHostileVolumes("the provisioner", hostile, create)
	l.check(create(func(v *corev1.PersistentVolume) {
		v.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: localDirectory}}
	}))

	_, err := volumes.Create(t.Context(), provisionersVolume(), metav1.CreateOptions{})
	l.check(err)
	other := provisionersVolume()
	other.Name = "disk-of-a-database"
	hostile["a volume of a driver"](other)
	_, err = l.api.CoreV1().PersistentVolumes().Create(t.Context(), other, metav1.CreateOptions{})
	l.check(err)
	claim := []byte(`{"spec": {"claimRef": {"namespace": "attacker", "name": "notes", "uid": ""}}}`)
	for _, name := range []string{localVolume, other.Name} {
		if _, err := volumes.Patch(t.Context(), name, types.MergePatchType, claim, metav1.PatchOptions{}); !refused(err) {
			t.Errorf("the provisioner can give PersistentVolume %s to another claim: %v", name, err)
		}
	}
	if err := volumes.Delete(t.Context(), other.Name, metav1.DeleteOptions{}); !refused(err) {
		t.Errorf("the provisioner can delete the PersistentVolume of a driver: %v", err)
	}
	l.check(volumes.Delete(t.Context(), localVolume, metav1.DeleteOptions{}))
}

// TestRealProvisioner: the provisioner itself, with the rights and the configuration of the channel, makes the volume of a claim and
// deletes it. The policies refuse none of its pods. No attack: the real program, with its limits.
func TestRealProvisioner(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	program := assettest.Program(t, localVolumesAccount, "bin/"+localVolumesAccount)
	l := newAddonLab(t, "local-volumes.yaml")
	ctx := t.Context()
	_, err := l.api.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: localNode, Labels: map[string]string{"kubernetes.io/hostname": localNode}},
	}, metav1.CreateOptions{})
	l.check(err)
	class := "local-path"
	claim, err := l.api.CoreV1().PersistentVolumeClaims("default").Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "notes", Annotations: map[string]string{
			"volume.kubernetes.io/selected-node":       localNode,
			"volume.kubernetes.io/storage-provisioner": "rancher.io/local-path",
		}},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class,
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Ki")}},
		},
	}, metav1.CreateOptions{})
	l.check(err)
	settings, err := l.api.CoreV1().ConfigMaps(localVolumesNamespace).Get(ctx, "local-path-config", metav1.GetOptions{})
	l.check(err)
	l.run(localVolumesAccount, program, "start", "--config", l.temporaryFile("config.json", settings.Data["config.json"]),
		"--service-account-name", localVolumesAccount, "--kubeconfig", l.kubeconfigOf(localVolumesNamespace, localVolumesAccount))

	name := "pvc-" + string(claim.UID)
	l.finishPod("helper-pod-create-" + name)
	l.await("the volume is there", func() error {
		v, err := l.api.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		if err == nil && v.Spec.HostPath.Path != localVolumes+name+"_default_notes" {
			err = fmt.Errorf("its directory is %s", v.Spec.HostPath.Path)
		}

		return err
	})

	// As Kubernetes does when the claim was deleted.
	l.check(l.api.CoreV1().PersistentVolumeClaims("default").Delete(ctx, "notes", metav1.DeleteOptions{}))
	volume, err := l.api.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
	l.check(err)
	volume.Status.Phase = corev1.VolumeReleased
	_, err = l.api.CoreV1().PersistentVolumes().UpdateStatus(ctx, volume, metav1.UpdateOptions{})
	l.check(err)
	l.finishPod("helper-pod-delete-" + name)
	l.await("the volume is deleted", func() error {
		v, err := l.api.CoreV1().PersistentVolumes().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && v.DeletionTimestamp != nil {
			return nil
		}

		return cmp.Or(err, errors.New("it is there"))
	})
}

// finishPod waits for a pod of the provisioner, and sets its status as a kubelet does when its script has succeeded.
func (l addonLab) finishPod(name string) {
	l.Helper()
	l.await("pod "+name+" ends", func() error {
		pod, err := l.api.CoreV1().Pods(localVolumesNamespace).Get(l.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		pod.Status.Phase = corev1.PodSucceeded
		_, err = l.api.CoreV1().Pods(localVolumesNamespace).UpdateStatus(l.Context(), pod, metav1.UpdateOptions{})

		return err
	})
}

// TestScriptsOfLocalVolumesFollowNoLinks: what the scripts of the channel make and delete as root is the directory of the volume, and
// not what links in it, or in its place, lead to. A pod can make links in its own volume. Seen to succeed with the scripts of before.
func TestScriptsOfLocalVolumesFollowNoLinks(t *testing.T) {
	s := newVolumeScripts(t)
	s.run("setup", 0)
	info, err := os.Stat(s.volume)
	check(t, err)
	if info.Mode().Perm() != 0o777 {
		t.Errorf("the directory of the volume has mode %v, want 0777", info.Mode().Perm())
	}

	// Links in a volume, as its pod can make them.
	check(t, os.Symlink(s.host, filepath.Join(s.volume, "directory")))
	check(t, os.Symlink(filepath.Join(s.host, "key"), filepath.Join(s.volume, "file")))
	check(t, os.MkdirAll(filepath.Join(s.volume, "below"), 0o755))
	check(t, os.Symlink("../../host", filepath.Join(s.volume, "below", "relative")))
	s.run("setup", 0)
	s.run("teardown", 0)
	if _, err := os.Lstat(s.volume); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory of the volume is left: %v", err)
	}
	s.unharmed()

	// A link in the place of a volume, which no pod can make. It is neither used nor followed.
	check(t, os.Symlink(s.host, s.volume))
	s.run("setup", 1)
	s.unharmed()
	s.run("teardown", 0)
	s.unharmed()
}

// volumeScripts are the scripts of the channel, with a directory of volumes and one of the machine next to it.
type volumeScripts struct {
	*testing.T
	scripts map[string]string // by name
	path    string            // with the programs of the scripts
	host    string
	volume  string
}

// newVolumeScripts reads the scripts of the channel. They run with the program of their image.
func newVolumeScripts(t *testing.T) volumeScripts {
	t.Helper()
	busybox := assettest.Program(t, "busybox", "root/bin/busybox")
	dir := t.TempDir()
	s := volumeScripts{T: t, path: filepath.Join(dir, "bin"), host: filepath.Join(dir, "host"), volume: filepath.Join(dir, "volumes", localVolume+"_demo_notes")}
	for _, d := range []string{s.path, s.host, filepath.Dir(s.volume)} {
		check(t, os.Mkdir(d, 0o700))
	}
	for _, name := range []string{"sh", "mkdir", "rm"} {
		check(t, os.Symlink(busybox, filepath.Join(s.path, name)))
	}
	check(t, os.WriteFile(filepath.Join(s.host, "key"), []byte("key"), 0o600))
	text, err := os.ReadFile(addonsFolder + "local-path-provisioner.yaml")
	check(t, err)
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		var m corev1.ConfigMap
		if strings.Contains(document, "kind: ConfigMap") {
			check(t, yaml.Unmarshal([]byte(document), &m))
			s.scripts = m.Data
		}
	}

	return s
}

// run runs a script for the volume and checks its exit code.
func (s volumeScripts) run(script string, code int) {
	s.Helper()
	cmd := exec.Command(filepath.Join(s.path, "sh"), "-c", s.scripts[script], script, "-p", s.volume)
	cmd.Env = []string{"PATH=" + s.path, "VOL_DIR=" + s.volume}
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != code {
		s.Fatalf("%s: %v, want exit code %d\n%s", script, err, code, out)
	}
}

// unharmed checks that nothing of the machine has changed.
func (s volumeScripts) unharmed() {
	s.Helper()
	got, err := os.ReadFile(filepath.Join(s.host, "key"))
	check(s.T, err)
	info, err := os.Stat(s.host)
	check(s.T, err)
	if string(got) != "key" || info.Mode().Perm() != 0o700 {
		s.Errorf("the directory of the machine has mode %v and a file with %q", info.Mode().Perm(), got)
	}
}
