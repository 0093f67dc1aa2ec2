// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/slipway-k8s/slipway/internal/machine/addon/apitest"
)

const ebsDriver = "ebs.csi.aws.com"

// newRoleAddonLab returns a kube-apiserver without controllers, next to a cluster in which an account has a role with a policy.
func newRoleAddonLab(t *testing.T, namespace, account, policy string) addonLab {
	t.Helper()
	p := newPodLab(t)
	p.createAccount(namespace, account, policy)
	l := addonLab{lab: p.lab, realAPI: startRealAPI(t, apitest.Options{})}
	var err error
	l.dynamic, err = dynamic.NewForConfig(l.realAPI.config)
	l.check(err)

	return l
}

// applyChannel applies a channel of examples/addons, whose pods nobody starts here.
func (l addonLab) applyChannel(channel string) {
	l.Helper()
	_, errs, _ := l.slipway(caller{}, "addons", "apply", "demo", "-f", addonsFolder+channel, "--kubeconfig", l.server.Kubeconfig, "--timeout", "10s", "--yes")
	if out, more, code := l.slipway(caller{}, "addons", "diff", "demo", "-f", addonsFolder+channel, "--kubeconfig", l.server.Kubeconfig); out != "" || code == 1 {
		l.Fatalf("diff has exit code %d after an apply:\n%s%s\nthe apply:\n%s", code, out, more, errs)
	}
}

// ebsVolume returns a PersistentVolume like that which the driver makes for a claim.
func ebsVolume(name string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("4Gi")},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: ebsDriver, VolumeHandle: "vol-0123456789abcdef0", FSType: "ext4"},
			},
			ClaimRef:         &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: "demo", Name: "notes", UID: localClaimUID},
			StorageClassName: "ebs-gp3",
		},
	}
}

// hostileEBSVolumes are changes of the driver's PersistentVolume with which a pod would reach something else.
func hostileEBSVolumes() map[string]func(*corev1.PersistentVolume) {
	source := func(s corev1.PersistentVolumeSource) func(*corev1.PersistentVolume) {
		return func(v *corev1.PersistentVolume) { v.Spec.PersistentVolumeSource = s }
	}
	secret := &corev1.SecretReference{Name: "keys", Namespace: "kube-system"}

	return map[string]func(*corev1.PersistentVolume){
		"the root of a machine":              source(corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}),
		"a share of another server":          source(corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "192.0.2.1", Path: "/"}}),
		"a volume of another driver":         func(v *corev1.PersistentVolume) { v.Spec.CSI.Driver = "secrets.example.com" },
		"a file instead of a volume":         func(v *corev1.PersistentVolume) { v.Spec.CSI.VolumeHandle = "../../etc" },
		"a device that a machine has":        func(v *corev1.PersistentVolume) { v.Spec.CSI.VolumeHandle = "local-ebs://dev/xvda" },
		"a Secret for the stage":             func(v *corev1.PersistentVolume) { v.Spec.CSI.NodeStageSecretRef = secret },
		"a Secret for the mount":             func(v *corev1.PersistentVolume) { v.Spec.CSI.NodePublishSecretRef = secret },
		"a Secret for the attachment":        func(v *corev1.PersistentVolume) { v.Spec.CSI.ControllerPublishSecretRef = secret },
		"a Secret for the growth":            func(v *corev1.PersistentVolume) { v.Spec.CSI.ControllerExpandSecretRef = secret },
		"a Secret for the file system":       func(v *corev1.PersistentVolume) { v.Spec.CSI.NodeExpandSecretRef = secret },
		"a volume for any claim":             func(v *corev1.PersistentVolume) { v.Spec.ClaimRef = nil },
		"a volume for the next of its name":  func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "" },
		"a volume with the name of another":  func(v *corev1.PersistentVolume) { v.Name = "pvc-00000000-0000-0000-0000-000000000000" },
		"a volume for another claim's token": func(v *corev1.PersistentVolume) { v.Spec.ClaimRef.UID = "00000000-0000-0000-0000-000000000000" },
	}
}

// TestTokenOfEBSDriverIsLimited: the token of the driver's controller makes PersistentVolumes of EBS for their claim, and no others; it
// gives no volume to another claim, keeps what is to be kept, binds no claim, and changes nothing of other drivers. The token of
// the part on workers changes nothing. Never open: the account's admission policy and this test were made together.
func TestTokenOfEBSDriverIsLimited(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: -short")
	}
	l := newRoleAddonLab(t, "kube-system", ebsAccount, ebsPolicy(t))
	l.applyChannel("volumes.yaml")
	api := l.apiOf("kube-system", ebsAccount)
	create := func(change func(*corev1.PersistentVolume)) error {
		v := ebsVolume(localVolume)
		change(v)
		_, err := api.CoreV1().PersistentVolumes().Create(t.Context(), v, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})

		return err
	}
	l.checkHostileVolumes("the driver", hostileEBSVolumes(), create)
	_, err := api.CoreV1().PersistentVolumes().Create(t.Context(), ebsVolume(localVolume), metav1.CreateOptions{})
	l.check(err)
	l.checkEBSVolumeChanges(api)
	l.checkEBSClaims(api)
	l.checkEBSOthers(api)

	node := l.apiOf("kube-system", "ebs-csi-node")
	_, err = node.CoreV1().Nodes().Patch(t.Context(), "any", types.MergePatchType, []byte(`{"spec":{"taints":null}}`), metav1.PatchOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("the part on workers can change Nodes: %v", err)
	}
}

// checkEBSVolumeChanges checks which changes of PersistentVolumes the driver can make.
func (l addonLab) checkEBSVolumeChanges(api kubernetes.Interface) {
	l.Helper()
	other := ebsVolume("disk-of-a-database")
	other.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "192.0.2.1", Path: "/"}}
	_, err := l.api.CoreV1().PersistentVolumes().Create(l.Context(), other, metav1.CreateOptions{})
	l.check(err)
	for _, c := range []struct {
		what, name, patch string
		want              bool
	}{
		{"set an annotation", localVolume, `{"metadata":{"annotations":{"a":"b"}}}`, true},
		{"let a volume grow", localVolume, `{"spec":{"capacity":{"storage":"8Gi"}}}`, true},
		{"give a volume to another claim", localVolume, `{"spec":{"claimRef":{"namespace":"attacker"}}}`, false},
		{"free a volume", localVolume, `{"spec":{"claimRef":null}}`, false},
		{"have a volume deleted", localVolume, `{"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`, false},
		{"change a volume of another kind", other.Name, `{"metadata":{"annotations":{"a":"b"}}}`, false},
	} {
		_, err := api.CoreV1().PersistentVolumes().Patch(l.Context(), c.name, types.MergePatchType, []byte(c.patch), metav1.PatchOptions{})
		if c.want && err != nil || !c.want && !refused(err) {
			l.Errorf("the driver can %s: %v, want %t", c.what, err, c.want)
		}
	}
	if err := api.CoreV1().PersistentVolumes().Delete(l.Context(), other.Name, metav1.DeleteOptions{}); !refused(err) {
		l.Errorf("the driver can delete a volume of another kind: %v", err)
	}
	l.check(api.CoreV1().PersistentVolumes().Delete(l.Context(), localVolume, metav1.DeleteOptions{}))
}

// checkEBSClaims checks that the driver sets annotations of claims and binds none.
func (l addonLab) checkEBSClaims(api kubernetes.Interface) {
	l.Helper()
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "notes"}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("4Gi")}},
	}}
	_, err := l.api.CoreV1().PersistentVolumeClaims("default").Create(l.Context(), claim, metav1.CreateOptions{})
	l.check(err)
	made, err := api.CoreV1().PersistentVolumeClaims("default").Get(l.Context(), claim.Name, metav1.GetOptions{})
	l.check(err)
	if made.Spec.StorageClassName == nil || *made.Spec.StorageClassName != "ebs-gp3" {
		l.Errorf("a claim without a class has the class %v", made.Spec.StorageClassName)
	}
	made.Annotations = map[string]string{"a": "b"}
	made, err = api.CoreV1().PersistentVolumeClaims("default").Update(l.Context(), made, metav1.UpdateOptions{})
	l.check(err)
	made.Spec.VolumeName = "disk-of-a-database"
	if _, err = api.CoreV1().PersistentVolumeClaims("default").Update(l.Context(), made, metav1.UpdateOptions{}); !refused(err) {
		l.Errorf("the driver can bind a claim to another volume: %v", err)
	}
}

// checkEBSOthers checks that attachments and snapshots of other drivers are not the driver's.
func (l addonLab) checkEBSOthers(api kubernetes.Interface) {
	l.Helper()
	contents := l.dynamic.Resource(schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotcontents"})
	config := *l.realAPI.config
	config.BearerToken = l.accountToken("kube-system", ebsAccount)
	config.CertData, config.KeyData = nil, nil
	config.CertFile, config.KeyFile = "", ""
	mine, err := dynamic.NewForConfig(&config)
	l.check(err)
	change := []byte(`{"metadata":{"annotations":{"a":"b"}}}`)
	for driver, want := range map[string]bool{ebsDriver: true, "disks.example.com": false} {
		name := "of-" + driver
		attachment := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.VolumeAttachmentSpec{
			Attacher: driver, NodeName: "worker", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("disk-of-a-database")},
		}}
		_, err := l.api.StorageV1().VolumeAttachments().Create(l.Context(), attachment, metav1.CreateOptions{})
		l.check(err)
		_, err = api.StorageV1().VolumeAttachments().Patch(l.Context(), name, types.MergePatchType, []byte(`{"status":{"attached":true}}`), metav1.PatchOptions{}, "status")
		if want && err != nil || !want && !refused(err) {
			l.Errorf("the driver can say that a volume of %s is attached: %v, want %t", driver, err, want)
		}

		content := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent", "metadata": map[string]any{"name": name},
			"spec": map[string]any{
				"deletionPolicy": "Retain", "driver": driver, "source": map[string]any{"snapshotHandle": "snap-0123456789abcdef0"},
				"volumeSnapshotRef": map[string]any{"namespace": "default", "name": "notes"},
			},
		}}
		_, err = contents.Create(l.Context(), content, metav1.CreateOptions{})
		l.check(err)
		_, err = mine.Resource(schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotcontents"}).
			Patch(l.Context(), name, types.MergePatchType, change, metav1.PatchOptions{})
		if want && err != nil || !want && !refused(err) {
			l.Errorf("the driver can change a snapshot of %s: %v, want %t", driver, err, want)
		}
	}
}
