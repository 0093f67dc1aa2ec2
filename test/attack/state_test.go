// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/slipway-k8s/slipway/internal/cluster/clusterstate"
	"github.com/slipway-k8s/slipway/internal/infra/iampolicy"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
)

// writer is a user who can write to the bucket of the state, and has no right to any key.
type writer struct {
	*lab
	caller
}

func (l *lab) writer() writer {
	l.Helper()
	policy := iampolicy.Policy{Version: "2012-10-17", Statement: []iampolicy.Statement{{
		Sid:      "Write",
		Effect:   "Allow",
		Action:   []string{"s3:PutObject", "s3:DeleteObject", "s3:ListBucket"},
		Resource: []string{"arn:aws:s3:::" + bucket, "arn:aws:s3:::" + bucket + "/*"},
	}}}

	return writer{l, l.user("writer", []iampolicy.Policy{policy})}
}

// put writes an object of the cluster demo, encrypted without the key of the bucket.
func (w writer) put(name string, body []byte) {
	w.Helper()
	_, err := w.s3(w.caller).PutObject(w.Context(), &s3.PutObjectInput{
		Bucket:               sdk.String(bucket),
		Key:                  sdk.String("team/demo/" + name),
		Body:                 bytes.NewReader(body),
		ServerSideEncryption: types.ServerSideEncryptionAes256,
	})
	w.check(err)
}

func (w writer) remove(name string) {
	w.Helper()
	key := sdk.String("team/demo/" + name)
	_, err := w.s3(w.caller).DeleteObject(w.Context(), &s3.DeleteObjectInput{Bucket: sdk.String(bucket), Key: key})
	w.check(err)
}

// read returns an object of the cluster demo as root, since its content is known elsewhere; nil if there is none.
func (l *lab) read(name string) []byte {
	l.Helper()
	if !slices.Contains(l.objects(), "team/demo/"+name) {
		return nil
	}

	o, err := l.s3(caller{}).GetObject(l.Context(), &s3.GetObjectInput{
		Bucket: sdk.String(bucket), Key: sdk.String("team/demo/" + name),
	})
	l.check(err)

	body, err := io.ReadAll(o.Body)
	l.check(err)

	return body
}

// edit replaces text in an object, and returns a function that restores it.
func (w writer) edit(name, old, now string) (restore func()) {
	w.Helper()
	before := w.read(name)
	after := bytes.ReplaceAll(before, []byte(old), []byte(now))
	if bytes.Equal(before, after) {
		w.Fatalf("%s has no %q:\n%s", name, old, before)
	}

	w.put(name, after)

	return func() { w.put(name, before) }
}

// refusedByAll checks that commands of an operator who may do everything, and the plan of a reader, are refused with a
// text, and change neither the state nor the machines' documents.
func (l *lab) refusedByAll(reader caller, what string, texts ...string) {
	l.Helper()
	before := l.objectsBelow("team/demo/")
	group := l.temporaryFile("group.yaml", smallGroup)

	for _, c := range []struct {
		who  caller
		args []string
	}{
		{reader, []string{"plan", "demo"}},
		{caller{}, []string{"plan", "demo"}},
		{caller{}, []string{"drift", "demo"}},
		{caller{}, []string{"apply", "demo", "--yes"}},
		{caller{}, []string{"replace", "-f", group, "--yes"}},
		{caller{}, []string{"delete", "group", "workers", "--name", "demo", "--yes"}},
		{caller{}, []string{"render", "terraform", "demo", "--out", filepath.Join(l.dir, "tf")}},
	} {
		l.refused(what, c.who, c.args, texts...)
	}

	if after := l.objectsBelow("team/demo/"); strings.Join(before, " ") != strings.Join(after, " ") {
		l.Errorf("%s: the objects changed:\n%s\n%s", what, before, after)
	}
}

// smallGroup is a manifest of a new group.
const smallGroup = `apiVersion: slipway.dev/v1alpha1
kind: InstanceGroup
metadata: {name: small, labels: {slipway.dev/cluster: demo}}
spec: {role: Worker, minSize: 1, machineType: t3.medium}
`

// refused checks that a command fails with texts.
func (l *lab) refused(what string, who caller, args []string, texts ...string) {
	l.Helper()
	out, errs, code := l.slipway(who, args...)
	for _, text := range texts {
		if code != 1 || !strings.Contains(errs, text) {
			l.Errorf("%s: slipway %s: exit %d, want %q\n%s%s", what, strings.Join(args, " "), code, text, out, errs)
		}
	}
}

// unsigned is in the message about objects that nobody has signed.
const unsigned = "not signed by an operator of the cluster"

// older is in the message about documents of an earlier revision than that in AWS.
const older = "is older than the one that was accepted last"

// newAuthority returns a certificate authority of an attacker.
func (l *lab) newAuthority(name string) pki.CA {
	l.Helper()
	key, err := pki.NewKey(name)
	l.check(err)

	ca, err := pki.NewCA(name, "demo", key, time.Now())
	l.check(err)

	return ca
}

// publicBundle returns the certificates of the cluster demo.
func (l *lab) publicBundle() pki.PublicBundle {
	l.Helper()
	var out pki.PublicBundle
	l.check(json.Unmarshal(l.read("pki/certs.json"), &out))

	return out
}

func (l *lab) encode(v any) []byte {
	l.Helper()
	body, err := json.Marshal(v)
	l.check(err)

	return body
}

// TestAddedAuthority: whoever can write to the bucket adds an authority of their own, which machines trust after the next
// apply, and operators after the next export. Seen to succeed before the documents were signed.
func TestAddedAuthority(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	w := l.writer()
	reader := l.user("reader", l.policies("demo", "--read-only"))
	export := []string{"export", "kubeconfig", "demo", "--kubeconfig", filepath.Join(l.dir, "config")}

	for _, name := range []string{pki.KubernetesCA, pki.EtcdClientCA} {
		before := l.read("pki/certs.json")
		public := l.publicBundle()
		public.CAs[name] += string(l.newAuthority(name).CertsPEM())
		w.put("pki/certs.json", l.encode(public))
		l.refusedByAll(reader, "an added "+name, "demo/pki/certs.json", unsigned)
		l.refused("an added "+name, caller{}, export, "demo/pki/certs.json", unsigned)
		w.put("pki/certs.json", before)
	}

	l.must(reader, 0, "plan", "demo")
	l.must(caller{}, 0, export...)
}

// TestEditedManifests: whoever can write to the bucket changes what the next apply does. Seen to succeed before the
// documents were signed.
func TestEditedManifests(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	w := l.writer()
	reader := l.user("reader", l.policies("demo", "--read-only"))

	restore := w.edit("cluster.yaml", "natGateways: PerZone", "natGateways: None")
	l.refusedByAll(reader, "an edited cluster", "demo/cluster.yaml", unsigned)
	restore()

	restore = w.edit("instancegroups/workers.yaml", "maxSize: 2", "maxSize: 3")
	l.refusedByAll(reader, "an edited group", "demo/instancegroups/workers.yaml", unsigned)
	l.refused("an edited group", caller{}, []string{"get", "groups", "demo"}, "demo/instancegroups/workers.yaml")
	restore()

	restore = w.edit("assets.yaml", "https://", "https://evil.example/")
	l.refusedByAll(reader, "other downloads", "demo/assets.yaml", unsigned)
	restore()

	w.put("instancegroups/small.yaml", []byte(smallGroup))
	l.refusedByAll(reader, "an added group", "demo/instancegroups/small.yaml", unsigned)
	w.remove("instancegroups/small.yaml")

	group := w.read("instancegroups/workers.yaml")
	w.remove("instancegroups/workers.yaml")
	l.refusedByAll(reader, "a deleted group", "demo/instancegroups/workers.yaml", unsigned)
	w.put("instancegroups/workers.yaml", group)

	l.must(reader, 0, "plan", "demo")
	l.must(caller{}, 0, "replace", "-f", l.temporaryFile("group.yaml", smallGroup), "--yes")
	l.must(reader, 2, "plan", "demo")
	l.must(caller{}, 0, "apply", "demo", "--yes")
	l.must(caller{}, 0, "delete", "group", "small", "--name", "demo", "--yes")
	l.must(reader, 2, "plan", "demo") // the control plane forgets the group
}

// TestRolledBackManifests: whoever can write to the bucket restores earlier manifests with their signature. Seen to succeed
// before AWS had the revision of what was applied last.
func TestRolledBackManifests(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	w := l.writer()
	reader := l.user("reader", l.policies("demo", "--read-only"))
	l.must(caller{}, 0, "replace", "-f", l.temporaryFile("group.yaml", smallGroup), "--yes")
	l.must(caller{}, 0, "apply", "demo", "--yes")
	group := w.read("instancegroups/small.yaml")
	signature := w.read("signature.json")
	l.must(caller{}, 0, "delete", "group", "small", "--name", "demo", "--yes")
	l.must(caller{}, 0, "apply", "demo", "--yes")
	last := w.read("signature.json")

	w.put("instancegroups/small.yaml", group)
	if signature != nil {
		w.put("signature.json", signature)
	}

	l.refused("earlier manifests", reader, []string{"plan", "demo"}, older)
	l.refused("earlier manifests", caller{}, []string{"plan", "demo"}, older)
	l.refused("earlier manifests", caller{}, []string{"apply", "demo", "--yes"}, older)

	w.remove("instancegroups/small.yaml")
	w.put("signature.json", last)
	l.must(reader, 0, "plan", "demo")
}

// TestForgedIndex: the index has a copy of a manifest that differs from the manifest itself. Seen to succeed before the
// documents were signed: the plan showed changes that no manifest asks for.
func TestForgedIndex(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	w := l.writer()
	reader := l.user("reader", l.policies("demo", "--read-only"))
	l.must(caller{}, 0, "plan", "demo")

	var index struct {
		Version int                       `json:"version"`
		Objects map[string]map[string]any `json:"objects"`
	}
	l.check(json.Unmarshal(w.read("index.json"), &index))

	forged := bytes.ReplaceAll(w.read("instancegroups/workers.yaml"), []byte("maxSize: 2"), []byte("maxSize: 3"))
	index.Objects["demo/instancegroups/workers.yaml"]["body"] = forged
	w.put("index.json", l.encode(index))

	l.must(reader, 0, "plan", "demo")
	l.must(caller{}, 0, "apply", "demo", "--yes")
}

// TestKeyOfSettingsOpensNothing: whoever can write to the bucket and has a key of their own seals an authority with it, and
// names the key in the settings: an administrator, who may use every key, exports a kubeconfig that trusts it. Seen to
// succeed before keys were opened with the key behind the alias.
func TestKeyOfSettingsOpensNothing(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	w := l.writer()
	keys := kms.NewFromConfig(l.config(caller{}))
	made, err := keys.CreateKey(t.Context(), &kms.CreateKeyInput{})
	l.check(err)

	ca := l.newAuthority(pki.KubernetesCA)
	text, err := ca.Key().PEM()
	l.check(err)

	sealer := store.NewKMSSealer(keys, *made.KeyMetadata.Arn)
	sealed, err := sealer.Seal(t.Context(), text, pki.PrivateKeyContext("demo", pki.KubernetesCA))
	l.check(err)

	public := l.publicBundle()
	public.CAs[pki.KubernetesCA] = string(ca.CertsPEM())
	w.put("pki/certs.json", l.encode(public))
	w.put("pki/private/"+pki.KubernetesCA, sealed)
	w.remove("signature.json")

	_, own := l.readSettings()
	l.editSettings(func(text string) string { return strings.ReplaceAll(text, own, *made.KeyMetadata.Arn) })
	export := []string{"export", "kubeconfig", "demo", "--kubeconfig", filepath.Join(l.dir, "config")}
	l.refused("a key of the attacker", caller{}, export, "cannot be decrypted")
}

// TestBoundaryOfAnAttacker: whoever can write to the bucket names another permissions boundary in the settings, which roles
// get with the next apply of an administrator. Seen to succeed before it was compared with that of the bucket.
func TestBoundaryOfAnAttacker(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	own := iampolicy.BoundaryARN("aws", "123456789012", bucket)
	other := "arn:aws:iam::aws:policy/AdministratorAccess"
	l.editSettings(func(text string) string { return strings.ReplaceAll(text, own, other) })

	for _, args := range [][]string{{"plan", "demo"}, {"apply", "demo", "--yes"}} {
		l.refused("another boundary", caller{}, args, "names the permissions boundary "+other)
	}
}

// TestDeletedSignature: whoever can write to the bucket deletes the signature, so that the manifests look like those of an
// older Slipway. Before the first apply, the sealed key tells that there was one, later AWS does. Never open: signatures and this test
// were made together.
func TestDeletedSignature(t *testing.T) {
	l := newLab(t)
	l.must(caller{}, 0, "create", "cluster", "demo", "--zones", "us-east-1a", "--yes")
	w := l.writer()
	reader := l.user("reader", l.policies("demo", "--read-only"))
	signature := w.read("signature.json")
	apply := []string{"apply", "demo", "--yes"}

	w.remove("signature.json")
	l.refused("a deleted signature", caller{}, apply, "demo/signature.json does not exist", unsigned)
	w.put("signature.json", signature)
	l.must(caller{}, 0, apply...)

	w.remove("signature.json")
	for _, who := range []caller{reader, {}} {
		l.refused("a deleted signature", who, []string{"plan", "demo"}, "demo/signature.json does not exist", unsigned)
	}

	l.refused("a deleted signature", caller{}, apply, "demo/signature.json does not exist", unsigned)
	l.must(caller{}, 0, "state", "sign", "demo", "--yes")
	l.must(reader, 0, "plan", "demo")
	l.must(caller{}, 0, apply...)
}

// TestSignatureOfAnAttacker: whoever can write to the bucket replaces all authorities, and signs the documents with the new
// ones. Never open: signatures and this test were made together.
func TestSignatureOfAnAttacker(t *testing.T) {
	l := newLab(t)
	l.must(caller{}, 0, "create", "cluster", "demo", "--zones", "us-east-1a", "--yes")
	l.forgeEverything()
	mismatch := "the key does not match the first certificate"
	l.refused("before the first apply", caller{}, []string{"apply", "demo", "--yes"}, mismatch)

	group := l.temporaryFile("group.yaml", smallGroup)
	l.refused("before the first apply", caller{}, []string{"replace", "-f", group, "--yes"}, mismatch)
	l.refused("before the first apply", caller{}, []string{"state", "sign", "demo", "--yes"}, mismatch)
	l.must(caller{}, 0, "delete", "cluster", "demo", "--yes")

	l.createCluster()
	l.forgeEverything()
	reader := l.user("reader", l.policies("demo", "--read-only"))
	l.refused("after the first apply", reader, []string{"plan", "demo"}, "AccessDenied")
	l.refusedByAdministrators(mismatch)
}

// refusedByAdministrators checks that the commands of those who may decrypt keys are refused.
func (l *lab) refusedByAdministrators(text string) {
	l.Helper()
	for _, args := range [][]string{
		{"plan", "demo"},
		{"apply", "demo", "--yes"},
		{"export", "kubeconfig", "demo", "--kubeconfig", filepath.Join(l.dir, "config")},
	} {
		l.refused("after the first apply", caller{}, args, text)
	}
}

// forgeEverything replaces the authorities of the cluster demo, and signs all documents with the new Kubernetes CA.
func (l *lab) forgeEverything() {
	l.Helper()
	public := l.publicBundle()
	ca := l.newAuthority(pki.KubernetesCA)
	public.CAs[pki.KubernetesCA] = string(ca.CertsPEM())
	certs := l.encode(public)
	documents := []store.Object{{Key: "demo/pki/certs.json", Body: certs}}
	for _, key := range l.objectsBelow("team/demo/") {
		key = strings.TrimPrefix(key, "team/")
		isManifest := key == "demo/cluster.yaml" || key == "demo/assets.yaml" || strings.HasPrefix(key, "demo/instancegroups/")
		if isManifest || strings.HasPrefix(key, "demo/addons/") {
			documents = append(documents, store.Object{Key: key, Body: l.read(strings.TrimPrefix(key, "demo/"))})
		}
	}

	later := time.Now().Add(time.Hour).Unix()
	signer := clusterstate.NewSigner(nil, "demo", ca.Key(), later, clusterstate.Signed{})
	signature, err := signer.SignNew(documents)
	l.check(err)

	l.putAsRoot("pki/certs.json", certs)
	l.putAsRoot("signature.json", signature.Body)
}

func (l *lab) putAsRoot(name string, body []byte) {
	l.Helper()
	_, err := l.s3(caller{}).PutObject(l.Context(), &s3.PutObjectInput{
		Bucket: sdk.String(bucket),
		Key:    sdk.String("team/demo/" + name),
		Body:   bytes.NewReader(body),
	})
	l.check(err)
}

// TestStateOfAnOlderSlipway: a cluster without a signature still works, with a warning, and its next apply signs it. No attack: what
// signing must not break.
func TestStateOfAnOlderSlipway(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	reader := l.user("reader", l.policies("demo", "--read-only"))
	l.makeOld()
	warning := "has no signature in " + stateURL

	for _, who := range []caller{reader, {}} {
		out, errs, code := l.slipway(who, "plan", "demo")
		if code != 0 || !strings.Contains(errs, warning) {
			t.Errorf("plan: exit %d\n%s%s", code, out, errs)
		}
	}

	w := l.writer()
	certs := w.read("pki/certs.json")
	public := l.publicBundle()
	public.CAs[pki.KubernetesCA] += string(l.newAuthority(pki.KubernetesCA).CertsPEM())
	w.put("pki/certs.json", l.encode(public))
	l.refused("an added authority", reader, []string{"plan", "demo"}, "demo/pki/certs.json", unsigned)
	l.refused("an added authority", caller{}, []string{"apply", "demo", "--yes"}, "demo/pki/certs.json", unsigned)
	w.put("pki/certs.json", certs)

	l.must(caller{}, 0, "export", "kubeconfig", "demo", "--kubeconfig", filepath.Join(l.dir, "config"))
	l.must(caller{}, 0, "replace", "-f", l.temporaryFile("group.yaml", smallGroup), "--yes")
	out, errs, code := l.slipway(caller{}, "apply", "demo", "--yes")
	if code != 0 || !strings.Contains(errs, warning) || !strings.Contains(errs, "signed the documents of cluster demo") {
		t.Errorf("apply: exit %d\n%s%s", code, out, errs)
	}

	if out, errs, code := l.slipway(reader, "plan", "demo"); code != 0 || strings.Contains(errs, "warning") {
		t.Errorf("plan: exit %d\n%s%s", code, out, errs)
	}

	w.edit("instancegroups/workers.yaml", "maxSize: 2", "maxSize: 3")
	l.refusedByAll(reader, "an edited group", "demo/instancegroups/workers.yaml", unsigned)
	w.remove("signature.json")
	l.refused("a deleted signature", caller{}, []string{"apply", "demo", "--yes"}, "demo/signature.json does not exist")
}

// makeOld makes the cluster demo one that an older Slipway has created: without signature, revision and mark of the key.
func (l *lab) makeOld() {
	l.Helper()
	_, err := l.s3(caller{}).DeleteObject(l.Context(), &s3.DeleteObjectInput{
		Bucket: sdk.String(bucket), Key: sdk.String("team/demo/signature.json"),
	})
	l.check(err)

	api := ec2.NewFromConfig(l.config(caller{}))
	tags, err := api.DescribeTags(l.Context(), &ec2.DescribeTagsInput{
		Filters: []ec2types.Filter{{Name: sdk.String("key"), Values: []string{"slipway.dev/revision"}}},
	})
	l.check(err)

	if len(tags.Tags) != 1 {
		l.Fatalf("%d resources have a revision", len(tags.Tags))
	}

	_, err = api.DeleteTags(l.Context(), &ec2.DeleteTagsInput{
		Resources: []string{*tags.Tags[0].ResourceId},
		Tags:      []ec2types.Tag{{Key: sdk.String("slipway.dev/revision")}},
	})
	l.check(err)

	aws := func(context.Context) (sdk.Config, error) { return l.config(caller{}), nil }
	s, sealer, err := store.Open(l.Context(), stateURL, store.Options{AWS: aws})
	l.check(err)

	bound := pki.PrivateKeyContext("demo", pki.KubernetesCA)
	text, err := sealer.Open(l.Context(), l.read("pki/private/"+pki.KubernetesCA), bound)
	l.check(err)

	_, pem, found := bytes.Cut(text, []byte("\n"))
	if !found || !bytes.HasPrefix(pem, []byte("-----BEGIN PRIVATE KEY-----")) {
		l.Fatal("the key has no mark")
	}

	sealed, err := sealer.Seal(l.Context(), pem, bound)
	l.check(err)

	_, err = s.Put(l.Context(), pki.PrivateKeyObjectKey("demo", pki.KubernetesCA), sealed)
	l.check(err)
}
