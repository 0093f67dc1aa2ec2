// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
)

const (
	ebsAccount = "ebs-csi-controller"
	ebsRole    = rolePrefix + "kube-system." + ebsAccount + ".us-east-1"
	ebsFile    = "../../examples/addons/aws-ebs-csi-driver-policy.json"
)

// ebsPolicy returns the policy of examples/addons for cluster demo.
func ebsPolicy(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(ebsFile)
	check(t, err)

	return strings.ReplaceAll(string(text), "CLUSTER", "demo")
}

// statementsOf returns the statements of a policy, which an administrator adds to the permissions boundary.
func statementsOf(t *testing.T, policy string) []any {
	t.Helper()
	var document struct{ Statement []any }
	check(t, json.Unmarshal([]byte(policy), &document))

	return document.Statement
}

// ebsLab is a lab with a cluster whose EBS CSI driver has the role of the channel in examples/addons.
type ebsLab struct {
	karpenterLab
	mine *ec2.Client // of the driver
}

func newEBSLab(t *testing.T) ebsLab {
	t.Helper()
	p := newPodLab(t)
	p.startAccount("kube-system", ebsAccount, ebsPolicy(t), statementsOf(t, ebsPolicy(t)))
	c := p.assumeAs(ebsRole, "kube-system", ebsAccount)
	l := ebsLab{karpenterLab: karpenterLab{podLab: p, ec2: ec2.NewFromConfig(p.config(caller{}))}, mine: ec2.NewFromConfig(p.config(c))}
	l.worker = l.machineOf("worker")

	return l
}

// replay returns the calls of the driver for a claim of a pod on a worker.
func (l *ebsLab) replay(claim string) *ebsReplay {
	return &ebsReplay{Context: l.Context(), api: l.mine, instance: l.worker, claim: claim}
}

// TestEBSDriversCallsAreAllowed: with the role of the channel, the local region answers the calls of the driver for the life of a claim as
// the driver expects them. No attack: what the driver needs; seen to fail in the local region of before.
func TestEBSDriversCallsAreAllowed(t *testing.T) {
	l := newEBSLab(t)
	l.check(l.replay("pvc-whole").run())
	if out, errs, code := l.slipway(caller{}, "drift", "demo"); code != 0 {
		t.Errorf("drift has exit code %d:\n%s%s", code, out, errs)
	}

	// What no call of the channel needs is not allowed.
	kept := l.replay("pvc-kept")
	l.check(kept.createVolume())
	l.check(kept.takeSnapshotOnly())
	_, err := l.mine.DescribeVolumeStatus(t.Context(), &ec2.DescribeVolumeStatusInput{VolumeIds: []string{kept.volume}})
	l.denied("wait for the initialization of a volume", err)
	_, err = l.mine.EnableFastSnapshotRestores(t.Context(), &ec2.EnableFastSnapshotRestoresInput{AvailabilityZones: []string{"us-east-1a"}, SourceSnapshotIds: []string{kept.snapshot}})
	l.notOffered("restore snapshots fast", err)
	_, err = l.mine.CopyVolumes(t.Context(), &ec2.CopyVolumesInput{SourceVolumeId: &kept.volume})
	l.notOffered("clone a volume", err)
	_, err = l.mine.LockSnapshot(t.Context(), &ec2.LockSnapshotInput{SnapshotId: &kept.snapshot, LockMode: ec2types.LockModeGovernance})
	l.notOffered("lock a snapshot", err)

	// Data is never deleted with the cluster, unless somebody asks for it.
	out, errs, _ := l.slipway(caller{}, "delete", "cluster", "demo")
	for _, want := range []string{
		"kept: " + kept.volume + " (volume, 4 GiB of claim shop/data)",
		"kept: " + kept.snapshot + " (snapshot of volume snapshot pvc-kept)",
	} {
		if !strings.Contains(errs, want) {
			t.Errorf("delete does not say %q:\n%s%s", want, out, errs)
		}
	}
}

// takeSnapshotOnly makes a snapshot and does not wait for it.
func (r *ebsReplay) takeSnapshotOnly() error {
	made, err := r.api.CreateSnapshot(r, &ec2.CreateSnapshotInput{VolumeId: &r.volume, TagSpecifications: r.tags(ec2types.ResourceTypeSnapshot, "CSIVolumeSnapshotName")})
	if err == nil {
		r.snapshot = *made.SnapshotId
	}

	return err
}

// notOffered checks that the region refuses an operation that it does not have by its name.
func (l *ebsLab) notOffered(what string, err error) {
	l.Helper()
	if problem := refusedAs(err, "InvalidAction"); problem != nil {
		l.Errorf("%s: %v", what, problem)
	}
}

// policyVariant is a policy without one of its actions or resources.
type policyVariant struct{ name, text string }

// policyVariants returns all policies that are smaller by one action or one resource.
func policyVariants(l *lab, text string) []policyVariant {
	l.Helper()
	var document struct {
		Version   string
		Statement []map[string]any
	}
	l.check(json.Unmarshal([]byte(text), &document))
	var out []policyVariant
	add := func(name string, statements []map[string]any) {
		changed := document
		changed.Statement = statements
		smaller, err := json.Marshal(changed)
		l.check(err)
		out = append(out, policyVariant{name, string(smaller)})
	}
	for i, s := range document.Statement {
		for _, field := range []string{"Action", "Resource"} {
			values, isList := s[field].([]any)
			if !isList && field == "Action" {
				add(fmt.Sprint(s["Sid"]), slices.Delete(slices.Clone(document.Statement), i, i+1))
			}
			for j, v := range values {
				smaller := maps.Clone(s)
				smaller[field] = slices.Delete(slices.Clone(values), j, j+1)
				statements := slices.Clone(document.Statement)
				statements[i] = smaller
				add(fmt.Sprintf("%s: %v", s["Sid"], v), statements)
			}
		}
	}

	return out
}

// setPolicy replaces the policy of the driver's role, as the account's root.
func (l *ebsLab) setPolicy(text string) {
	l.Helper()
	api := iam.NewFromConfig(l.config(caller{}))
	role := sdk.String(ebsRole[strings.LastIndex(ebsRole, "/")+1:])
	names, err := api.ListRolePolicies(l.Context(), &iam.ListRolePoliciesInput{RoleName: role})
	l.check(err)
	_, err = api.PutRolePolicy(l.Context(), &iam.PutRolePolicyInput{RoleName: role, PolicyName: &names.PolicyNames[0], PolicyDocument: &text})
	l.check(err)
}

// TestEBSDriverNeedsItsPolicy: without any one action or resource of its policy the driver's calls fail. No attack: the policy has
// nothing to spare.
func TestEBSDriverNeedsItsPolicy(t *testing.T) {
	l := newEBSLab(t)
	variants := policyVariants(l.lab, ebsPolicy(t))
	for i, v := range variants {
		l.setPolicy(v.text)
		l.denied("without "+v.name, l.replay(fmt.Sprintf("pvc-%d", i)).run())
	}
	t.Logf("COUNT policies that are smaller by one action or resource: %d", len(variants))
}

// volumeOfSlot returns the id of the etcd volume of a slot.
func (l *ebsLab) volumeOfSlot(slot string) string {
	l.Helper()
	out, err := l.ec2.DescribeVolumes(l.Context(), &ec2.DescribeVolumesInput{Filters: []ec2types.Filter{{Name: sdk.String("tag:slipway.dev/etcd-slot"), Values: []string{slot}}}})
	l.check(err)
	if len(out.Volumes) != 1 {
		l.Fatalf("%d volumes of slot %s", len(out.Volumes), slot)
	}

	return *out.Volumes[0].VolumeId
}

// ofOthers creates a volume and a snapshot as the driver of another cluster does.
func (l *ebsLab) ofOthers() (volume, snapshot string) {
	l.Helper()
	tags := func(kind ec2types.ResourceType) []ec2types.TagSpecification {
		return ec2TagsOfOther(kind, "ebs.csi.aws.com/cluster", "true", "ebs.csi.aws.com/cluster-name", "other", "kubernetes.io/cluster/other", "owned")
	}
	v, err := l.ec2.CreateVolume(l.Context(), &ec2.CreateVolumeInput{AvailabilityZone: l.worker.Placement.AvailabilityZone, Size: sdk.Int32(4), TagSpecifications: tags("volume")})
	l.check(err)
	s, err := l.ec2.CreateSnapshot(l.Context(), &ec2.CreateSnapshotInput{VolumeId: v.VolumeId, TagSpecifications: tags("snapshot")})
	l.check(err)

	return *v.VolumeId, *s.SnapshotId
}

func ec2TagsOfOther(kind ec2types.ResourceType, pairs ...string) []ec2types.TagSpecification {
	var all []ec2types.Tag
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, ec2types.Tag{Key: &pairs[i], Value: &pairs[i+1]})
	}

	return []ec2types.TagSpecification{{ResourceType: kind, Tags: all}}
}

// TestEBSDriverIsLimited: with the role of the channel, the volumes of etcd, of machines and of other clusters can be neither attached
// nor detached, changed, copied into a snapshot, deleted or tagged; nothing is attached to a machine of the control plane; and no
// volume can be made that is not encrypted, or that Slipway takes for one of its own. Never open: the role's policy and this test were
// made together.
func TestEBSDriverIsLimited(t *testing.T) {
	l := newEBSLab(t)
	own := l.replay("pvc-own")
	l.check(own.createVolume())
	controlPlane := l.machineOf("control-plane")
	other, snapshot := l.ofOthers()
	etcd := l.volumeOfSlot("a")
	root := *l.worker.BlockDeviceMappings[0].Ebs.VolumeId
	for what, id := range map[string]string{"an etcd volume": etcd, "the root volume of a worker": root, "a volume of another cluster": other} {
		l.deniedVolume(what, id)
	}

	_, err := l.mine.AttachVolume(t.Context(), &ec2.AttachVolumeInput{Device: sdk.String("/dev/xvdaa"), InstanceId: controlPlane.InstanceId, VolumeId: &own.volume})
	l.denied("attach a volume to the control plane", err)
	_, err = l.mine.DeleteSnapshot(t.Context(), &ec2.DeleteSnapshotInput{SnapshotId: &snapshot})
	l.denied("delete a snapshot of another cluster", err)
	_, err = l.mine.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{snapshot}, Tags: own.tags("snapshot", "x")[0].Tags})
	l.denied("tag a snapshot of another cluster", err)
	_, err = l.mine.DeleteTags(t.Context(), &ec2.DeleteTagsInput{Resources: []string{own.volume}, Tags: own.tags("volume", "x")[0].Tags})
	l.denied("take tags away", err)
	_, err = l.mine.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{*l.worker.InstanceId}})
	l.denied("end a machine", err)

	for what, change := range map[string]func(*ec2.CreateVolumeInput){
		"create a volume that is not encrypted":      func(in *ec2.CreateVolumeInput) { in.Encrypted = sdk.Bool(false) },
		"create a volume without the cluster's name": func(in *ec2.CreateVolumeInput) { in.TagSpecifications = nil },
		"create a volume of another cluster": func(in *ec2.CreateVolumeInput) {
			in.TagSpecifications = ec2TagsOfOther("volume", "ebs.csi.aws.com/cluster-name", "other")
		},
		"create a volume that etcd would use": func(in *ec2.CreateVolumeInput) {
			in.TagSpecifications = own.tags("volume", "CSIVolumeName", "slipway.dev/cluster", "demo", "slipway.dev/etcd-slot", "a")
		},
		"read a snapshot of another cluster": func(in *ec2.CreateVolumeInput) { in.SnapshotId = &snapshot },
	} {
		request := own.volumeRequest()
		request.ClientToken = nil
		change(request)
		_, err := l.mine.CreateVolume(t.Context(), request)
		l.denied(what, err)
	}
}

// deniedVolume checks that the driver's role can do nothing with a volume.
func (l *ebsLab) deniedVolume(what, id string) {
	l.Helper()
	ctx := l.Context()
	own := l.replay("pvc-own")
	_, err := l.mine.AttachVolume(ctx, &ec2.AttachVolumeInput{Device: sdk.String("/dev/xvdaa"), InstanceId: l.worker.InstanceId, VolumeId: &id})
	l.denied("attach "+what, err)
	_, err = l.mine.DetachVolume(ctx, &ec2.DetachVolumeInput{VolumeId: &id, InstanceId: l.worker.InstanceId})
	l.denied("detach "+what, err)
	_, err = l.mine.ModifyVolume(ctx, &ec2.ModifyVolumeInput{VolumeId: &id, Size: sdk.Int32(100)})
	l.denied("change "+what, err)
	_, err = l.mine.CreateSnapshot(ctx, &ec2.CreateSnapshotInput{VolumeId: &id, TagSpecifications: own.tags("snapshot", "CSIVolumeSnapshotName")})
	l.denied("take a snapshot of "+what, err)
	_, err = l.mine.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: &id})
	l.denied("delete "+what, err)
	_, err = l.mine.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{id}, Tags: own.tags("volume", "CSIVolumeName")[0].Tags})
	l.denied("tag "+what, err)
}
