// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
)

// mountingRunner mounts and unmounts the etcd volume of a machine.
type mountingRunner struct {
	*killer

	t   *testing.T
	a   *Agent
	log *[]string
}

func (r mountingRunner) Run(_ context.Context, name string, args ...string) (string, error) {
	if err := r.effect(); err != nil {
		return "", err
	}

	*r.log = append(*r.log, name+" "+strings.Join(args, " "))
	if name == "mount" || name == "umount" {
		writeMountinfo(r.t, r.a, name == "mount")
	}

	return "", nil
}

// handOverStore is a store whose writes count.
type handOverStore struct {
	store.Store
	*killer
}

func (s handOverStore) Put(ctx context.Context, key string, body []byte) (string, error) {
	if err := s.effect(); err != nil {
		return "", err
	}

	return s.Store.Put(ctx, key, body)
}

// volumeEC2 is an EC2 with one volume, which has one machine at a time.
type volumeEC2 struct {
	fakeEC2
	*killer

	log *[]string
}

func (f *volumeEC2) holder() string {
	if len(f.volumes[0].Attachments) == 0 {
		return ""
	}

	return *f.volumes[0].Attachments[0].InstanceId
}

func (f *volumeEC2) AttachVolume(_ context.Context, in *ec2.AttachVolumeInput, _ ...func(*ec2.Options)) (*ec2.AttachVolumeOutput, error) {
	if f.holder() != "" {
		return nil, &smithy.GenericAPIError{Code: "VolumeInUse", Message: "it is attached to " + f.holder()}
	}

	f.volumes[0].Attachments = []types.VolumeAttachment{{InstanceId: in.InstanceId, State: types.VolumeAttachmentStateAttached}}

	return &ec2.AttachVolumeOutput{}, nil
}

func (f *volumeEC2) DetachVolume(_ context.Context, in *ec2.DetachVolumeInput, _ ...func(*ec2.Options)) (*ec2.DetachVolumeOutput, error) {
	if aws.ToBool(in.DryRun) {
		return nil, &smithy.GenericAPIError{Code: "DryRunOperation", Message: "Request would have succeeded"}
	}

	if err := f.effect(); err != nil {
		return nil, err
	}

	*f.log = append(*f.log, "detach")
	f.volumes[0].Attachments = nil

	return &ec2.DetachVolumeOutput{}, nil
}

// TestKilledHandOver: an agent that is killed before any change of a hand-over is started again. The volume is then at one
// machine, the former one or the successor, whichever asks first, and never detached while it is mounted; the former
// machine can run its control plane again.
func TestKilledHandOver(t *testing.T) {
	const changes = 4 // the record, etcd, umount, detach
	for allowed := range changes + 1 {
		for _, successorFirst := range []bool{false, true} {
			t.Run(fmt.Sprintf("after %d changes, successor first %t", allowed, successorFirst), func(t *testing.T) {
				killHandOver(t, allowed, allowed < changes, successorFirst)
			})
		}
	}
}

// killHandOver releases the slot of a machine, lets the agent make so many changes, and starts it again.
func killHandOver(t *testing.T, allowed int, wantKilled, successorFirst bool) {
	t.Helper()
	a, api, _ := slotHolder(t)
	kill, log := &killer{left: allowed}, []string{}
	volume := &volumeEC2{fakeEC2: api.fakeEC2, killer: kill, log: &log}
	a.EC2 = volume
	a.Run = mountingRunner{killer: kill, t: t, a: a, log: &log}
	files, err := a.Store("")
	if err != nil {
		t.Fatal(err)
	}

	a.Store = func(string) (store.Store, error) { return handOverStore{Store: files, killer: kill}, nil }
	if _, err := a.Root.Write(File{Path: "/dev/disk/by-id/nvme-Amazon_Elastic_Block_Store_vol1", Mode: 0o644}); err != nil {
		t.Fatal(err)
	}

	err = releaseOf(t, a, &log).run(t.Context())
	if killed := errors.Is(err, errKilled); killed != wantKilled || !killed && err != nil {
		t.Fatalf("the release ended with %v after %q", err, log)
	}

	if i := slices.Index(log, "detach"); i >= 0 && !slices.Contains(log[:i], "umount "+etcd.DataMount) {
		t.Errorf("detached before it was unmounted: %q", log)
	}

	if successorFirst && volume.holder() == "" {
		volume.volumes[0].Attachments = []types.VolumeAttachment{{InstanceId: aws.String("i-new"), State: types.VolumeAttachmentStateAttached}}
	}

	kill.left = 100 // the agent's next process
	a.handOver = handOver{}
	m, err := a.newEtcdMember()
	if err != nil {
		t.Fatal(err)
	}

	for range 3 {
		err = m.mountVolume(t.Context())
	}

	mount, mountErr := readVolumeMount(a.Root)
	if mountErr != nil {
		t.Fatal(mountErr)
	}

	switch volume.holder() {
	case "i-new":
		if _, held := errors.AsType[heldVolumeError](err); !held || mount.mounted {
			t.Errorf("the successor has the volume: %v, mounted %t", err, mount.mounted)
		}

	case a.instance.ID:
		if err != nil || !mount.mounted {
			t.Errorf("the machine has its volume: %v, mounted %t", err, mount.mounted)
		}

		if err := a.writeStaticPods(); err != nil || len(staticPodFiles(t, a)) != 3 {
			t.Errorf("static pods %v, %v", staticPodFiles(t, a), err)
		}

	default:
		t.Errorf("the volume is at %q: %v", volume.holder(), err)
	}
}
