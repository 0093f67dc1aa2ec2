// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/slipway-k8s/slipway/internal/lib/sleep"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/backup"
)

const etcdFolder = "team/demo/machine/etcd/"

// leaderStandIn does with the role of slot a what the machine of etcd's leader does: it takes a backup when it is asked for one.
type leaderStandIn struct {
	*lab
	archive backup.Archive
}

func newLeaderStandIn(l *lab) leaderStandIn {
	l.Helper()
	role := l.assumed(l.roleOfSlot("a"))
	found, err := kms.NewFromConfig(l.config(caller{})).DescribeKey(l.Context(), &kms.DescribeKeyInput{KeyId: sdk.String("alias/slipway-" + bucket)})
	l.check(err)

	return leaderStandIn{lab: l, archive: backup.Archive{
		Store:   store.NewS3Store(l.s3(role), bucket, "team"),
		Sealer:  store.NewKMSSealer(kms.NewFromConfig(l.config(role)), *found.KeyMetadata.Arn),
		Cluster: "demo",
	}}
}

// take stores a backup.
func (s leaderStandIn) take(ctx context.Context, id string) error {
	m, err := s.archive.Upload(ctx, id, strings.NewReader("a snapshot"))
	if err != nil {
		return err
	}

	m.TakenAt = time.Now()

	return s.archive.Commit(ctx, m)
}

// answer answers the next request of a snapshot.
func (s leaderStandIn) answer(ctx context.Context, id string) error {
	for {
		request, err := s.archive.ReadRequest(ctx)
		if err != nil {
			return err
		}

		if request != nil {
			if err := s.take(ctx, id); err != nil {
				return err
			}

			return s.archive.WriteAnswer(ctx, backup.Answer{ID: request.ID, UpdatedAt: time.Now(), Done: true, Backup: id})
		}

		if err := sleep.For(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// isDeniedText reports whether the output of a command tells of a denied call.
func isDeniedText(text string) bool {
	text = strings.ToLower(text)

	return strings.Contains(text, "denied") || strings.Contains(text, "not authorized") || strings.Contains(text, "unauthorized")
}

// TestEtcdCommandsOfReader: the read-only policy gives no access to the folder of etcd, whose backups have all Secrets: IAM refuses each
// command of etcd, and nothing is changed. Never open: the test was written after the policy.
func TestEtcdCommandsOfReader(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	machine := newLeaderStandIn(l)
	id := backup.NewID(time.Now(), "abcdef")
	l.check(machine.take(t.Context(), id))
	reader := l.user("reader", l.policies("demo", "--read-only"))

	before := l.objectsBelow(etcdFolder)
	for _, command := range []string{
		"snapshots demo", "status demo", "members demo", "snapshot demo --timeout 1s", "restore " + id + " demo --yes --timeout 1s",
	} {
		out, errs, code := l.slipway(reader, append([]string{"etcd"}, strings.Fields(command)...)...)
		if code != 1 || !isDeniedText(errs) {
			t.Errorf("%s: exit %d\n%s%s", command, code, out, errs)
		}
	}

	if after := l.objectsBelow(etcdFolder); !slices.Equal(after, before) {
		t.Errorf("the reader has changed %v to %v", before, after)
	}

	api := l.s3(reader)
	for _, key := range []string{"backups/" + id + "/part-00000", "backups/" + id + "/backup.json"} {
		_, err := api.GetObject(t.Context(), &s3.GetObjectInput{Bucket: sdk.String(bucket), Key: sdk.String(etcdFolder + key)})
		l.denied("read "+key, err)
	}
}

// TestEtcdCommandsOfOperator: the operator's policy is enough for each command of etcd, up to what only machines do: the request of a backup
// is answered by one with the machine's role, the backup is read and decrypted, and its restoration is begun. No attack: it shows that the
// policy is not too narrow.
func TestEtcdCommandsOfOperator(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	machine := newLeaderStandIn(l)
	operator := l.user("operator", l.policies("demo"))

	id := backup.NewID(time.Now(), "abcdef")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	answered := make(chan error, 1)
	go func() { answered <- machine.answer(ctx, id) }()
	if out := l.must(operator, 0, "etcd", "snapshot", "demo", "--timeout", "1m"); strings.TrimSpace(out) != id {
		t.Errorf("snapshot printed %q, want %s", out, id)
	}

	l.check(<-answered)

	if out := l.must(operator, 0, "etcd", "snapshots", "demo"); !strings.Contains(out, id) {
		t.Errorf("snapshots lacks the backup:\n%s", out)
	}

	// This region runs no machines: no member answers, and nobody restores.
	for command, want := range map[string]string{
		"status demo": "etcd-a", "members demo": "etcd-a", "defrag demo --yes": "etcd-a",
		"restore " + id + " demo --yes --timeout 1s": "the restoration has not ended within 1s",
	} {
		out, errs, code := l.slipway(operator, append([]string{"etcd"}, strings.Fields(command)...)...)
		if isDeniedText(out+errs) || !strings.Contains(out+errs, want) || code > 2 {
			t.Errorf("%s: exit %d, want %q\n%s%s", command, code, want, out, errs)
		}
	}

	if begun := l.objectsBelow(etcdFolder + "generations/"); len(begun) != 1 {
		t.Errorf("the restoration has not begun: %v", begun)
	}
}
