// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/node"
)

const (
	// newVolumeInterval is the time between two looks of a machine whose slot has no volume.
	newVolumeInterval = 10 * time.Second
	// newVolumeTimeout limits one look.
	newVolumeTimeout = 40 * time.Second
	// tagAddress is the tag by which slipway apply knows the volume.
	tagAddress = "slipway.dev/address"
)

// missingVolumeError means that EC2 lists no volume of the machine's slot in its zone.
type missingVolumeError struct{ notReadyError }

func (e missingVolumeError) Unwrap() error { return e.notReadyError }

// volumeMaker creates the volume of the machine's slot after the loss of the former one, if the cluster's document permits it:
// see [etcd.DecideVolume].
type volumeMaker struct {
	member *etcdMember
	// members returns the membership list of a healthy peer; nil while none answers.
	members func(ctx context.Context) ([]etcd.Member, error)
	// busy returns who changes the control plane; empty: nobody.
	busy func(ctx context.Context) string

	watch  etcd.VolumeWatch
	looked time.Time
	reason string
	// joined is the volume on which the slot's member had data last.
	joined string
}

// newVolumeRecord is the content of a slot's record of the volume that its machine has created.
type newVolumeRecord struct {
	// Lost is the volume on which the slot's member had data last. If it has had data on another one since, the record is old.
	Lost string `json:"lost"`
	// Volume was created last.
	Volume string `json:"volume"`
}

func newVolumeMaker(m *etcdMember) *volumeMaker {
	v := &volumeMaker{member: m}
	v.members = v.askMembers
	v.busy = v.findChanges

	return v
}

// create takes one decision and carries it out. It returns a notReadyError that says what the machine waits for; missing if
// machines create no volumes.
func (v *volumeMaker) create(ctx context.Context, missing error) error {
	a := v.member.agent
	after, err := time.ParseDuration(a.doc.Etcd.NewVolumes.After)
	if err != nil {
		return missing
	}

	if now := a.Now(); v.reason == "" || now.Sub(v.looked) >= newVolumeInterval {
		v.looked = now
		v.reason = v.look(ctx, after)
	}

	return newNotReadyError("%s", v.reason)
}

// look takes one decision and returns its reason, or why it could not be taken or carried out.
func (v *volumeMaker) look(ctx context.Context, after time.Duration) string {
	ctx, cancel := context.WithTimeout(ctx, newVolumeTimeout)
	defer cancel()
	f := etcd.VolumeFacts{Slot: v.member.slot.Name, After: after}
	key, err := v.gather(ctx, &f)
	if err != nil {
		v.watch = etcd.VolumeWatch{}
		return "slot " + f.Slot + " has no volume, and it is not known why: " + err.Error()
	}

	v.watch = v.watch.Observe(f, v.member.agent.Now())
	step := etcd.DecideVolume(f, v.watch)
	if !step.Create {
		return step.Reason
	}

	id, err := v.request(ctx, f.Lost, key)
	if err != nil {
		return err.Error()
	}

	v.watch = etcd.VolumeWatch{} // EC2 may list the new volume some time later
	v.member.agent.Log.Info("created a volume", slog.String("volume", id), slog.String("reason", step.Reason))
	if err := v.recordNewVolume(ctx, id); err != nil {
		return err.Error() // if this volume is lost too, the same request is sent once more
	}

	return "created volume " + id + ": " + step.Reason
}

// gather adds what EC2, the store and the other members know, and returns the key for the volume:
// see [keyOfVolumes].
func (v *volumeMaker) gather(ctx context.Context, f *etcd.VolumeFacts) (string, error) {
	m := v.member
	if err := v.gatherLost(ctx, f); err != nil {
		return "", err
	}

	listed, err := m.agent.ec2Client().ListVolumes(ctx)
	if err != nil {
		return "", err
	}

	var others []Volume
	for _, found := range listed {
		if found.Slot == f.Slot {
			f.Found = append(f.Found, found.ID)
		} else if !slices.Contains(unusableStates(), found.State) {
			others = append(others, found)
		}
	}

	if f.Members, err = v.members(ctx); err != nil {
		return "", err
	}

	f.Busy = v.busy(ctx)

	return keyOfVolumes(others), nil
}

// keyOfVolumes returns the key of the encrypted volume of the slot with the lowest name, or "". It
// does not depend on the order of the volumes: who repeats a request must send the same key, or EC2
// refuses its token.
func keyOfVolumes(volumes []Volume) string {
	encrypted := slices.DeleteFunc(volumes, func(v Volume) bool { return v.KMSKey == "" })
	if len(encrypted) == 0 {
		return ""
	}

	first := slices.MinFunc(encrypted, func(a, b Volume) int {
		return cmp.Or(strings.Compare(a.Slot, b.Slot), strings.Compare(a.ID, b.ID))
	})

	return first.KMSKey
}

// gatherLost adds the volume that was lost last: the one on which the slot's member had data, or the one that a machine created
// after it. Either may still exist, whatever its tags are.
func (v *volumeMaker) gatherLost(ctx context.Context, f *etcd.VolumeFacts) error {
	m := v.member
	record, err := m.readJoinedRecord(ctx)
	if err != nil {
		return err
	}

	absent, err := m.readAbsent(ctx, f.Slot)
	if err != nil || absent.Absent || record.Volume == "" { // apply creates the volume of a slot that has returned
		return err
	}

	v.joined = record.Volume
	f.Lost = record.Volume
	ids := []string{record.Volume}
	key := node.EtcdNewVolumeKey(m.agent.doc.Cluster, f.Slot)
	created, err := readJSONObject[newVolumeRecord](ctx, m.store, key)
	if err != nil && !errors.Is(err, store.ErrNotFound) {
		return err
	}

	if created != nil && created.Lost == record.Volume {
		f.Lost = created.Volume
		ids = append(ids, created.Volume)
	}

	existing, err := m.agent.ec2Client().findVolumes(ctx, ids)
	for _, found := range existing {
		f.Found = append(f.Found, found.ID)
	}

	return err
}

// recordNewVolume stores which volume was created. EC2 answers a request with a token that it knows with the volume of the
// first request, also when that no longer exists: the loss of this volume needs another token.
func (v *volumeMaker) recordNewVolume(ctx context.Context, id string) error {
	m := v.member
	body, err := json.Marshal(newVolumeRecord{Lost: v.joined, Volume: id})
	if err != nil {
		return fmt.Errorf("encode the record of a new volume: %w", err)
	}

	_, err = m.store.Put(ctx, node.EtcdNewVolumeKey(m.agent.doc.Cluster, m.slot.Name), body)

	return err
}

// askMembers returns the membership list of a healthy peer of the newest generation.
func (v *volumeMaker) askMembers(ctx context.Context) ([]etcd.Member, error) {
	m := v.member
	if err := m.agent.syncHosts(ctx); err != nil {
		return nil, err
	}

	f := etcd.Facts{Slot: m.slot.Name, Slots: slotNames(m.agent)}
	if err := m.gatherGeneration(ctx, &f); err != nil {
		return nil, err
	}

	var err error
	if f.Joined, err = m.listJoined(ctx, f.Generation); err != nil {
		return nil, err
	}

	return m.managerOf(f).Members(ctx, f.Slot), nil
}

// findChanges returns who changes the control plane, or why that is not known; empty: nobody.
func (v *volumeMaker) findChanges(ctx context.Context) string {
	a := v.member.agent
	if err := currentOf(a).checkOwnSlot(ctx); err != nil {
		return err.Error()
	}

	lock, _, err := newUpdateLock(a).read(ctx)
	if err != nil {
		return "the update lock of the control plane cannot be read: " + err.Error()
	}

	if lock.IsHeldByOther("", a.Now()) {
		return "the control plane is being changed: its update lock is held by " + lock.Holder
	}

	return ""
}

// request creates the volume. The token depends on the volume that was lost last: another machine of the slot, or another process
// of the agent, gets the same volume, and the next loss another one.
func (v *volumeMaker) request(ctx context.Context, lost, key string) (string, error) {
	a := v.member.agent
	slot := v.member.slot.Name
	want := a.doc.Etcd.NewVolumes
	sum := sha256.Sum256([]byte(strings.Join([]string{"new volume", a.doc.Cluster, a.doc.ClusterID, slot, lost}, "\n")))
	in := &ec2.CreateVolumeInput{
		AvailabilityZone: &a.instance.Zone,
		VolumeType:       types.VolumeType(want.Volume.Type),
		Size:             aws.Int32(int32(want.Volume.Size)),
		Encrypted:        aws.Bool(true),
		ClientToken:      aws.String(hex.EncodeToString(sum[:])),
		TagSpecifications: []types.TagSpecification{{
			ResourceType: types.ResourceTypeVolume,
			Tags:         newVolumeTags(want, a.doc.Cluster, slot),
		}},
	}
	if want.Volume.IOPS != 0 {
		in.Iops = aws.Int32(int32(want.Volume.IOPS))
	}

	if want.Volume.Throughput != 0 {
		in.Throughput = aws.Int32(int32(want.Volume.Throughput))
	}

	if key == "" {
		return "", fmt.Errorf("cannot create a volume for slot %s: no other slot has an encrypted volume, whose key it would have", slot)
	}

	in.KmsKeyId = &key
	out, err := a.EC2.CreateVolume(ctx, in)
	if err != nil {
		return "", explainNewVolume(fmt.Errorf("cannot create a volume for slot %s: %w", slot, err))
	}

	return aws.ToString(out.VolumeId), nil
}

// explainNewVolume adds what to do if the machine may not create volumes.
func explainNewVolume(err error) error {
	var refused smithy.APIError
	if !errors.As(err, &refused) || refused.ErrorCode() != "UnauthorizedOperation" {
		return err
	}

	return fmt.Errorf("%w; create it with: slipway apply --recreate-lost-volumes; whether the permissions boundary is of an older "+
		"version says: slipway iam boundary", err)
}

// newVolumeTags returns the tags that slipway apply would give the volume.
func newVolumeTags(want node.NewVolumes, cluster, slot string) []types.Tag {
	tags := maps.Clone(want.Tags)
	name := "etcd-" + slot
	tags[tagSlot] = slot
	tags[tagAddress] = "volume/" + name
	tags["Name"] = name + "." + cluster

	var out []types.Tag
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, types.Tag{Key: aws.String(key), Value: aws.String(tags[key])})
	}

	return out
}
