// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-k8s/slipway/api/v1alpha1"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

// creatingEC2 is an EC2 that creates volumes, one for each token.
type creatingEC2 struct {
	fakeEC2
	requests []*ec2.CreateVolumeInput
	created  map[string]string // volumes by token
	refuse   bool
}

func (f *creatingEC2) DescribeVolumes(_ context.Context, in *ec2.DescribeVolumesInput, _ ...func(*ec2.Options)) (*ec2.DescribeVolumesOutput, error) {
	out := &ec2.DescribeVolumesOutput{}
	for _, v := range f.volumes {
		byID := *in.Filters[0].Name == "volume-id"
		if byID == (byID && slices.Contains(in.Filters[0].Values, *v.VolumeId)) && (byID || tagValue(v.Tags, tagSlot) != "") {
			out.Volumes = append(out.Volumes, v)
		}
	}
	return out, nil
}

func (f *creatingEC2) CreateVolume(_ context.Context, in *ec2.CreateVolumeInput, _ ...func(*ec2.Options)) (*ec2.CreateVolumeOutput, error) {
	if f.refuse {
		return nil, &smithy.GenericAPIError{Code: "UnauthorizedOperation", Message: "You are not authorized to perform this operation."}
	}
	f.requests = append(f.requests, in)
	if f.created == nil {
		f.created = map[string]string{}
	}
	if f.created[*in.ClientToken] == "" {
		f.created[*in.ClientToken] = fmt.Sprintf("vol-new%d", len(f.created))
	}
	return &ec2.CreateVolumeOutput{VolumeId: aws.String(f.created[*in.ClientToken])}, nil
}

// newLossTest returns the maker of a machine of slot a, whose volume vol-a is lost, and its EC2.
func newLossTest(t *testing.T) (*volumeMaker, *creatingEC2, func(looks int) string) {
	t.Helper()
	a := testAgent(t)
	a.doc = testDocument(t, 3, a.bundle)
	a.doc.Etcd.NewVolumes = node.NewVolumes{
		After:  "5m",
		Volume: v1alpha1.Volume{Type: "gp3", Size: 20, IOPS: 3000, Throughput: 125},
		Tags:   map[string]string{tagCluster: "demo", "team": "x"},
	}
	now := time.Date(2026, 11, 26, 8, 0, 0, 0, time.UTC)
	a.Now = func() time.Time { return now }
	other := slotVolume("vol-b", "b", "us-east-1b", "i-b", now)
	other.KmsKeyId = aws.String("arn:aws:kms:us-east-1:123456789012:key/k")
	api := &creatingEC2{fakeEC2: fakeEC2{volumes: []types.Volume{other}}}
	a.EC2 = api
	slot, _ := a.doc.Slot("a")
	m := &etcdMember{agent: a, slot: slot, store: store.NewFileStore(t.TempDir())}
	if _, err := m.store.Put(t.Context(), node.EtcdJoinedKey("demo", "a"), []byte(`{"volume": "vol-a"}`)); err != nil {
		t.Fatal(err)
	}
	v := newVolumeMaker(m)
	v.busy = func(context.Context) string { return "" }
	v.members = func(context.Context) ([]etcd.Member, error) {
		return []etcd.Member{{ID: 1, Slot: "a"}, {ID: 2, Slot: "b", Healthy: true}, {ID: 3, Slot: "c", Healthy: true}}, nil
	}
	return v, api, func(looks int) string {
		err := error(nil)
		for range looks {
			now = now.Add(newVolumeInterval)
			err = v.create(t.Context(), newNotReadyError("missing"))
		}
		return err.Error()
	}
}

// TestNewVolume: the machine of a slot creates the volume as apply would, after the time of the document, and once.
func TestNewVolume(t *testing.T) {
	_, api, look := newLossTest(t)
	if got := look(30); !strings.Contains(got, "for 4m50s: a new one is created after 5m0s") || len(api.requests) != 0 {
		t.Fatalf("%s: %d requests", got, len(api.requests))
	}
	if got := look(1); !strings.HasPrefix(got, "created volume vol-new0: volume vol-a of slot a is lost") {
		t.Fatal(got)
	}
	in := api.requests[0]
	tags := map[string]string{}
	for _, tag := range in.TagSpecifications[0].Tags {
		tags[*tag.Key] = *tag.Value
	}
	want := map[string]string{
		tagCluster: "demo", "team": "x", tagSlot: "a", "slipway.dev/address": "volume/etcd-a", "Name": "etcd-a.demo",
	}
	if diff := cmp.Diff(want, tags); diff != "" {
		t.Error(diff)
	}
	if *in.Size != 20 || in.VolumeType != "gp3" || *in.Iops != 3000 || *in.Throughput != 125 || !*in.Encrypted ||
		*in.AvailabilityZone != "us-east-1a" || *in.KmsKeyId != "arn:aws:kms:us-east-1:123456789012:key/k" {
		t.Errorf("%+v", in)
	}
}

// TestKeyOfNewVolume: a new volume gets the key of the slot of the lowest name that has one, whatever the order of EC2's list and the
// age of the volumes are: a machine that repeats the request must send the same.
func TestKeyOfNewVolume(t *testing.T) {
	v, api, _ := newLossTest(t)
	v.member.slot.Name = "c"
	if _, err := v.member.store.Put(t.Context(), node.EtcdJoinedKey("demo", "c"), []byte(`{"volume": "vol-c"}`)); err != nil {
		t.Fatal(err)
	}
	created := time.Date(2026, 11, 26, 7, 0, 0, 0, time.UTC)
	encrypted := func(id, slot, key string, age time.Duration) types.Volume {
		volume := slotVolume(id, slot, "us-east-1b", "i-"+slot, created.Add(-age))
		if key != "" {
			volume.KmsKeyId = aws.String(key)
		}
		return volume
	}
	plain := encrypted("vol-0", "0", "", time.Minute)
	a := encrypted("vol-2", "a", "key-of-a", 2*time.Hour)
	second := encrypted("vol-1", "a", "key-of-another", time.Hour)
	b := encrypted("vol-3", "b", "key-of-b", 3*time.Hour)
	for _, volumes := range [][]types.Volume{{plain, a, b}, {b, a, plain}} {
		api.volumes = volumes
		f := etcd.VolumeFacts{Slot: "c"}
		if key, err := v.gather(t.Context(), &f); err != nil || key != "key-of-a" {
			t.Errorf("key %q, %v", key, err)
		}
	}
	for _, volumes := range [][]types.Volume{{second, a, b}, {b, a, second}} {
		api.volumes = volumes
		f := etcd.VolumeFacts{Slot: "c"}
		if key, err := v.gather(t.Context(), &f); err != nil || key != "key-of-another" {
			t.Errorf("of two volumes of a slot: key %q, %v", key, err)
		}
	}
}

// TestNewVolumeOfKilledAgent: an agent that is killed before it knows which volume it has created asks for the same one.
func TestNewVolumeOfKilledAgent(t *testing.T) {
	v, api, look := newLossTest(t)
	look(31)
	if err := v.member.store.Delete(t.Context(), node.EtcdNewVolumeKey("demo", "a")); err != nil {
		t.Fatal(err)
	}
	*v = *newLikeVolumeMaker(v)
	if got := look(31); !strings.HasPrefix(got, "created volume vol-new0: ") || len(api.requests) != 2 {
		t.Errorf("%s: %d requests", got, len(api.requests))
	}
}

// TestSecondLoss: if the new volume is lost too before the member had data on it, another one is created: EC2 would answer the
// same request with the lost volume.
func TestSecondLoss(t *testing.T) {
	v, api, look := newLossTest(t)
	look(31)
	if got := look(30); !strings.Contains(got, "volume vol-new0 of slot a is lost for 4m50s") || len(api.requests) != 1 {
		t.Errorf("%s: %d requests", got, len(api.requests))
	}
	*v = *newLikeVolumeMaker(v) // another process, or another machine
	if got := look(31); !strings.HasPrefix(got, "created volume vol-new1: volume vol-new0 of slot a is lost") || len(api.requests) != 2 {
		t.Errorf("%s: %d requests", got, len(api.requests))
	}

	// It exists although it has lost its tags.
	api.add("vol-new1", "", "us-east-1a", "available")
	if got := look(40); !strings.Contains(got, "has volume vol-new1") || len(api.requests) != 2 {
		t.Errorf("%s: %d requests", got, len(api.requests))
	}

	// After the member had data there, the record is old.
	if err := v.member.writeJoinedRecord(t.Context(), joinedRecord{Volume: "vol-c"}); err != nil {
		t.Fatal(err)
	}
	if got := look(1); !strings.Contains(got, "volume vol-c of slot a is lost for 0s") {
		t.Error(got)
	}
}

// newLikeVolumeMaker returns the maker of a new process of the agent.
func newLikeVolumeMaker(v *volumeMaker) *volumeMaker {
	return &volumeMaker{member: v.member, members: v.members, busy: v.busy}
}

// TestNoNewVolume: machines create no volume that may be a second one, without permission, or while it is not known whether they may.
func TestNoNewVolume(t *testing.T) {
	for name, c := range map[string]struct {
		change func(v *volumeMaker, api *creatingEC2)
		reason string
	}{
		"not permitted":    {func(v *volumeMaker, _ *creatingEC2) { v.member.agent.doc.Etcd.NewVolumes = node.NewVolumes{} }, "missing"},
		"in another zone":  {func(_ *volumeMaker, api *creatingEC2) { api.add("vol-x", "a", "us-east-1b", "available") }, "has volume vol-x"},
		"failed":           {func(_ *volumeMaker, api *creatingEC2) { api.add("vol-a", "a", "us-east-1a", "error") }, "has volume vol-a"},
		"its tag was lost": {func(_ *volumeMaker, api *creatingEC2) { api.add("vol-a", "", "us-east-1a", "available") }, "has volume vol-a"},
		"the plan has it": {func(v *volumeMaker, _ *creatingEC2) {
			v.busy = func(context.Context) string { return "the control plane is being changed" }
		}, "is being changed"},
		"slot was removed": {func(v *volumeMaker, _ *creatingEC2) {
			if err := v.member.writeAbsent(context.Background(), "a", true); err != nil {
				panic(err)
			}
		}, "never had data"},
		"refused":           {func(_ *volumeMaker, api *creatingEC2) { api.refuse = true }, "not authorized to perform this operation.; create it with: slipway apply"},
		"nothing encrypted": {func(_ *volumeMaker, api *creatingEC2) { api.volumes[0].KmsKeyId = nil }, "no other slot has an encrypted volume"},
	} {
		t.Run(name, func(t *testing.T) {
			v, api, look := newLossTest(t)
			c.change(v, api)
			if got := look(40); !strings.Contains(got, c.reason) || len(api.requests) != 0 {
				t.Errorf("%q, %d requests; want %q", got, len(api.requests), c.reason)
			}
		})
	}
}

func (f *creatingEC2) add(id, slot, zone string, state types.VolumeState) {
	v := slotVolume(id, slot, zone, "", time.Time{})
	v.State = state
	if slot == "" {
		v.Tags = nil
	}
	f.volumes = append(f.volumes, v)
}

// TestTagsOfNewVolumes: the tags of the document are not changed.
func TestTagsOfNewVolumes(t *testing.T) {
	want := node.NewVolumes{Tags: map[string]string{"a": "b"}}
	before := maps.Clone(want.Tags)
	if got := newVolumeTags(want, "demo", "c"); len(got) != 4 || !maps.Equal(before, want.Tags) {
		t.Errorf("%d tags; the document's are %v", len(got), want.Tags)
	}
}
