// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/region/regiontest"
)

// TestSealingKeyOfAnAttacker: whoever can write to the bucket names a key of their own in the settings of the store, and
// waits for an administrator, whom no operator policy limits, to seal the authorities of the next cluster with it. Seen
// to succeed before the key was found by its alias.
func TestSealingKeyOfAnAttacker(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	made, err := kms.NewFromConfig(l.config(caller{})).CreateKey(t.Context(), &kms.CreateKeyInput{})
	l.check(err)

	text, own := l.readSettings()
	elsewhere := strings.Replace(own, regiontest.AccountID, otherAccount, 1)

	for name, key := range map[string]string{"in the account": *made.KeyMetadata.Arn, "in another account": elsewhere} {
		l.editSettings(func(string) string { return strings.ReplaceAll(text, own, key) })
		out, errs, code := l.slipway(caller{}, "create", "cluster", "second", "--zones", "us-east-1a", "--yes")
		if code == 0 || !strings.Contains(errs, "slipway-state.json") || !strings.Contains(errs, key) {
			t.Errorf("a key %s: exit %d\n%s%s", name, code, out, errs)
		}

		for _, object := range l.objects() {
			if strings.Contains(object, "/second/pki/private/") {
				t.Errorf("a key %s sealed %s", name, object)
			}
		}
	}

	l.editSettings(func(string) string { return text })
	l.must(caller{}, 0, "create", "cluster", "second", "--zones", "us-east-1a", "--yes")
}

// readSettings returns the settings of the store and the ARN of the key in them.
func (l *lab) readSettings() (text, key string) {
	l.Helper()
	text = l.editSettings(func(text string) string { return text })

	_, rest, found := strings.Cut(text, `"kmsKeyArn": "`)
	if !found {
		l.Fatalf("the settings name no key: %s", text)
	}

	key, _, _ = strings.Cut(rest, `"`)

	return text, key
}

// TestKeyOfAnExistingCluster: the key of the settings goes into node documents and into the policies of roles with the
// next apply, so that machines seal the backups of etcd for the attacker. Seen to succeed before the key was compared.
func TestKeyOfAnExistingCluster(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	made, err := kms.NewFromConfig(l.config(caller{})).CreateKey(t.Context(), &kms.CreateKeyInput{})
	l.check(err)

	text, own := l.readSettings()
	l.editSettings(func(string) string { return strings.ReplaceAll(text, own, *made.KeyMetadata.Arn) })
	before := l.objectsBelow("team/demo/")

	for _, args := range [][]string{
		{"plan", "demo"},
		{"apply", "demo", "--yes"},
		{"render", "cloudformation", "demo"},
		{"render", "terraform", "demo", "--out", filepath.Join(l.dir, "tf")},
	} {
		out, errs, code := l.slipway(caller{}, args...)
		if code == 0 || !strings.Contains(errs, "slipway-state.json") || !strings.Contains(errs, "restore the earlier version") {
			t.Errorf("slipway %s: exit %d\n%s%s", args, code, out, errs)
		}
	}

	if after := l.objectsBelow("team/demo/"); strings.Join(before, " ") != strings.Join(after, " ") {
		t.Errorf("the objects changed:\n%s\n%s", before, after)
	}

	l.editSettings(func(string) string { return text })
	l.must(caller{}, 0, "plan", "demo")
}

// TestKeyWithoutAlias: the alias of the store's key was deleted, by mistake or to make room for another one. Nothing is
// sealed, and the message says how to get it back. No attack: what happens without the alias.
func TestKeyWithoutAlias(t *testing.T) {
	l := newLab(t)
	keys := kms.NewFromConfig(l.config(caller{}))
	_, err := keys.DeleteAlias(t.Context(), &kms.DeleteAliasInput{AliasName: sdk.String("alias/slipway-" + bucket)})
	l.check(err)

	create := []string{"create", "cluster", "demo", "--zones", "us-east-1a", "--yes"}
	out, errs, code := l.slipway(caller{}, create...)
	_, command, _ := strings.Cut(errs, "aws kms create-alias ")
	command, _, _ = strings.Cut(command, "\n")
	words := strings.Fields(command)
	if code == 0 || len(words) != 6 || words[1] != regiontest.RegionName || words[3] != "alias/slipway-"+bucket {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}

	_, err = keys.CreateAlias(t.Context(), &kms.CreateAliasInput{AliasName: &words[3], TargetKeyId: &words[5]})
	l.check(err)
	l.must(caller{}, 0, create...)
}

// editSettings replaces the settings of the store, as whoever can write to the bucket can. It returns the former text.
func (l *lab) editSettings(edit func(text string) string) string {
	l.Helper()
	key := sdk.String("team/slipway-state.json")
	found, err := l.s3(caller{}).GetObject(l.Context(), &s3.GetObjectInput{Bucket: sdk.String(bucket), Key: key})
	l.check(err)

	text, err := io.ReadAll(found.Body)
	l.check(err)

	_, err = l.s3(caller{}).PutObject(l.Context(), &s3.PutObjectInput{
		Bucket: sdk.String(bucket), Key: key, Body: strings.NewReader(edit(string(text))),
	})
	l.check(err)

	return string(text)
}

// TestKeyOfAnotherBackup: whoever was an administrator of another cluster, whose backup was restored into this one, knows
// its encryption key. They put its envelope, which has no name, in the place of the cluster's own, so that machines would
// encrypt new Secrets with a key that they know. Seen to succeed while keys without names were accepted.
func TestKeyOfAnotherBackup(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	w := l.writer()
	known, err := pki.NewKey(pki.EncryptionKey)
	l.check(err)
	root := l.machineStore(caller{})
	l.check(pki.PublishFormerKey(t.Context(), root.Store, root.Sealer, "demo", known))

	envelopes, err := root.List(t.Context(), pki.FormerKeyPrefix("demo"))
	l.check(err)
	envelope, err := root.Get(t.Context(), envelopes[0])
	l.check(err)

	own, err := root.Get(t.Context(), pki.MachineKeyObjectKey("demo", pki.EncryptionKey))
	l.check(err)
	w.put("machine/secrets/"+pki.EncryptionKey, envelope.Body)

	_, public := l.readBundle()
	machine := l.machineStore(l.assumed("demo.control-plane-a.us-east-1"))
	_, err = pki.LoadMachineBundle(t.Context(), machine, machine.Sealer, "demo", public)
	if err == nil || !strings.Contains(err.Error(), "sealed without its name") {
		t.Errorf("machines encrypt Secrets with the key of the attacker: %v", err)
	}

	w.put("machine/secrets/"+pki.EncryptionKey, own.Body)
	_, err = pki.LoadMachineBundle(t.Context(), machine, machine.Sealer, "demo", public)
	l.check(err)
	keys, err := pki.LoadFormerKeys(t.Context(), machine, machine.Sealer, "demo")
	if err != nil || len(keys) != 1 {
		t.Errorf("%d keys read older Secrets: %v", len(keys), err)
	}
}

// TestKeysOfAnOlderSlipway: the keys that an older Slipway has sealed get names with the first apply, before the agent that
// requires them is published, also if the apply is interrupted in between. Seen to succeed while machines took keys without names.
func TestKeysOfAnOlderSlipway(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	root := l.machineStore(caller{})
	bundle, public := l.readBundle()
	for name, key := range l.keysOf(bundle) {
		text, err := key.PEM()
		l.check(err)
		sealed, err := root.Seal(t.Context(), text, pki.MachineKeyContext("demo"))
		l.check(err)
		_, err = root.Put(t.Context(), pki.MachineKeyObjectKey("demo", name), sealed)
		l.check(err)
	}

	machine := l.machineStore(l.assumed("demo.control-plane-a.us-east-1"))
	if _, err := pki.LoadMachineBundle(t.Context(), machine, machine.Sealer, "demo", public); err == nil {
		t.Error("keys without names are accepted")
	}

	newer, err := exec.LookPath("false")
	l.check(err)
	l.agent = newer
	before := l.objectsBelow("team/demo/machine/")
	unable := l.user("unable", append(l.policies("demo"), iampolicy.Policy{
		Version: "2012-10-17",
		Statement: []iampolicy.Statement{{
			Sid:      "Interrupt",
			Effect:   "Deny",
			Action:   []string{"s3:PutObject"},
			Resource: []string{"arn:aws:s3:::" + bucket + "/team/demo/machine/secrets/*"},
		}},
	}))
	if out, errs, code := l.slipway(unable, "apply", "demo", "--yes"); code == 0 || !strings.Contains(errs, "machine/secrets/") {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}

	if after := l.objectsBelow("team/demo/machine/"); !slices.Equal(before, after) {
		t.Errorf("an agent was published before the keys had names:\n%s\n%s", before, after)
	}

	l.must(caller{}, 0, "apply", "demo", "--yes")
	_, err = pki.LoadMachineBundle(t.Context(), machine, machine.Sealer, "demo", public)
	l.check(err)
}

// sealedStore is a store and what seals in it.
type sealedStore struct {
	store.Store
	store.Sealer
}

// machineStore returns the machine store as c reads it.
func (l *lab) machineStore(c caller) sealedStore {
	l.Helper()
	_, key := l.readSettings()

	return sealedStore{
		store.NewS3Store(l.s3(c), bucket, "team"),
		store.NewKMSSealer(kms.NewFromConfig(l.config(c)), key),
	}
}

// readBundle returns the keys of the cluster demo, as root reads them, and the part that everybody may read.
func (l *lab) readBundle() (pki.Bundle, pki.PublicBundle) {
	l.Helper()
	s := l.machineStore(caller{})
	bundle, err := pki.LoadBundle(l.Context(), s, s.Sealer, "demo")
	l.check(err)
	public, err := bundle.PublicPart()
	l.check(err)

	return bundle, public
}

// keysOf returns the keys of a bundle by their names.
func (l *lab) keysOf(b pki.Bundle) map[string]pki.Key {
	l.Helper()
	out := map[string]pki.Key{pki.ServiceAccountKey: b.ServiceAccount, pki.EncryptionKey: b.Encryption}
	for name, ca := range b.CAs {
		out[name] = ca.Key()
	}

	return out
}
