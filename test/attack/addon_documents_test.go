// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

const (
	// stateChannel is a channel with an add-on and a registry secret of the state store.
	stateChannel = `apiVersion: slipway.dev/v1alpha1
kind: AddonChannel
metadata: {name: base}
spec:
  addons:
  - name: settings
    version: 1.0.0
    source: {manifest: "state://settings.yaml"}
`
	secretChannel = `apiVersion: slipway.dev/v1alpha1
kind: AddonChannel
metadata: {name: teams}
spec:
  addons:
  - name: teams
    version: 1.0.0
    source:
      namespaces:
      - {name: shop, registrySecrets: [registry]}
`
	// settingsAddon is an object of the add-on, and administratorAddon what an attacker makes of it.
	settingsAddon = `apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: default}
data: {color: blue}
`
	administratorAddon = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: attacker}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: attacker}]
`
)

// addonCommands are commands of an administrator that read what channels name in the state store.
func addonCommands(channel string) [][]string {
	return [][]string{
		{"addons", "render", "demo", "-f", channel},
		{"addons", "publish", "demo", "-f", channel, "--yes"},
	}
}

// putAddon writes a document of an add-on as an operator does, who then signs it.
func (l *lab) putAddon(text string) {
	l.Helper()
	l.putAsRoot("addons/settings.yaml", []byte(text))
	l.must(caller{}, 0, "state", "sign", "demo", "--yes")
}

// TestEditedAddonDocuments: whoever can write to the bucket changes a document that channels of add-ons name, and becomes
// an administrator of Kubernetes with the next apply or publication of the channel. Seen to succeed before these documents
// were signed.
func TestEditedAddonDocuments(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	w := l.writer()
	channel := l.temporaryFile("channel.yaml", stateChannel)
	l.putAddon(settingsAddon)
	for _, args := range addonCommands(channel) {
		l.must(caller{}, 0, args...)
	}

	w.put("addons/settings.yaml", []byte(administratorAddon))
	for _, args := range addonCommands(channel) {
		l.refused("an edited add-on", caller{}, args, "demo/addons/settings.yaml", unsigned)
	}

	// What no plan reads does not stop one. The next change of a manifest does not sign it.
	l.must(caller{}, 0, "plan", "demo")
	l.must(caller{}, 0, "replace", "-f", l.temporaryFile("group.yaml", smallGroup), "--yes")
	l.must(caller{}, 0, "apply", "demo", "--yes")
	for _, args := range addonCommands(channel) {
		l.refused("an edited add-on after an apply", caller{}, args, "demo/addons/settings.yaml", unsigned)
	}

	w.put("addons/settings.yaml", []byte(settingsAddon))
	for _, args := range addonCommands(channel) {
		l.must(caller{}, 0, args...)
	}
}

// TestAddedAddonDocument: whoever can write to the bucket adds a document that a channel names and that does not exist.
// Seen to succeed before these documents were signed.
func TestAddedAddonDocument(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	l.writer().put("addons/settings.yaml", []byte(administratorAddon))
	for _, args := range addonCommands(l.temporaryFile("channel.yaml", stateChannel)) {
		l.refused("an added add-on", caller{}, args, "demo/addons/settings.yaml", unsigned)
	}
}

// TestRolledBackAddonDocuments: whoever can write to the bucket restores an earlier version of a document, such as one with
// a known weakness, alone or with its signature. Seen to succeed before these documents were signed.
func TestRolledBackAddonDocuments(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	w := l.writer()
	channel := l.temporaryFile("channel.yaml", stateChannel)
	l.putAddon(administratorAddon)
	signature := w.read("signature.json")
	l.putAddon(settingsAddon)
	l.must(caller{}, 0, "replace", "-f", l.temporaryFile("group.yaml", smallGroup), "--yes")
	l.must(caller{}, 0, "apply", "demo", "--yes")
	last := w.read("signature.json")

	w.put("addons/settings.yaml", []byte(administratorAddon))
	for _, args := range addonCommands(channel) {
		l.refused("an earlier add-on", caller{}, args, "demo/addons/settings.yaml", unsigned)
	}

	// With its manifests, all that was signed then is as it was.
	w.put("signature.json", signature)
	group := w.read("instancegroups/small.yaml")
	w.remove("instancegroups/small.yaml")
	for _, args := range addonCommands(channel) {
		l.refused("an earlier state", caller{}, args, older)
	}

	w.put("signature.json", last)
	w.put("instancegroups/small.yaml", group)
	w.put("addons/settings.yaml", []byte(settingsAddon))
	l.must(caller{}, 0, addonCommands(channel)[0]...)

	w.remove("signature.json")
	for _, args := range addonCommands(channel) {
		l.refused("a deleted signature", caller{}, args, "demo/signature.json does not exist", unsigned)
	}
}

// TestAddonDocumentsOfAnAttacker: whoever can write to the bucket replaces the authorities and signs everything with them. Seen to
// succeed while documents of add-ons were not signed.
func TestAddonDocumentsOfAnAttacker(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	l.putAddon(settingsAddon)
	l.writer().put("addons/settings.yaml", []byte(administratorAddon))
	l.forgeEverything()
	for _, args := range addonCommands(l.temporaryFile("channel.yaml", stateChannel)) {
		l.refused("documents of an attacker", caller{}, args, "the key does not match the first certificate")
	}
}

// TestRolledBackRegistrySecret: whoever can write to the bucket restores an earlier registry secret, whose credentials were
// replaced since they were lost. Seen to succeed before these secrets were signed.
func TestRolledBackRegistrySecret(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	w := l.writer()
	channel := l.temporaryFile("channel.yaml", secretChannel)
	l.setSecret("lost")
	lost := w.read("addons/secrets/registry")
	l.setSecret("new")
	now := w.read("addons/secrets/registry")
	for _, args := range addonCommands(channel) {
		l.must(caller{}, 0, args...)
	}

	w.put("addons/secrets/registry", lost)
	for _, args := range addonCommands(channel) {
		l.refused("an earlier secret", caller{}, args, "demo/addons/secrets/registry", unsigned)
	}

	w.put("addons/secrets/registry", now)
	l.must(caller{}, 0, "addons", "secrets", "delete", "registry", "--name", "demo", "--yes")
	w.put("addons/secrets/registry", now)
	for _, args := range addonCommands(channel) {
		l.refused("a deleted secret", caller{}, args, "demo/addons/secrets/registry", unsigned)
	}
}

// setSecret writes the registry secret as an operator does.
func (l *lab) setSecret(password string) {
	l.Helper()
	config := `{"auths": {"registry.example.com": {"username": "u", "password": "` + password + `"}}}`
	l.must(caller{}, 0, "addons", "secrets", "set", "registry", "--name", "demo", "-f", l.temporaryFile("config.json", config), "--yes")
}

// TestRolledBackRegistrySecretWithItsSignature: whoever can write to the bucket restores an earlier registry secret together
// with the signature of that time, before any apply has followed, and claims in the record of the cluster's id that the
// resources in AWS are those of another cluster. Seen to succeed while only an apply told AWS which revision it is, and
// while commands that change documents signed the earlier ones with theirs.
func TestRolledBackRegistrySecretWithItsSignature(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	w := l.writer()
	reader := l.user("reader", l.policies("demo", "--read-only"))
	channel := l.temporaryFile("channel.yaml", secretChannel)
	l.setSecret("lost")
	lost := w.read("addons/secrets/registry")
	signature := w.read("signature.json")
	l.setSecret("new")
	now := w.read("addons/secrets/registry")
	last := w.read("signature.json")
	publish := addonCommands(channel)[1]
	l.must(caller{}, 0, publish...)
	published := w.read("machine/secrets/addon-channels")

	w.put("addons/secrets/registry", lost)
	w.put("signature.json", signature)
	l.refusedAsOlder("an earlier secret", reader, addonCommands(channel))

	restore := w.edit("ownership.json", l.clusterID(), "aaaaaaaaaaaaaaaa")
	for _, args := range addonCommands(channel) {
		l.refused("an earlier secret, with the id of another cluster", caller{}, args, older)
	}

	restore()
	if !bytes.Equal(published, w.read("machine/secrets/addon-channels")) {
		t.Error("the control plane gets the earlier secret")
	}

	_, errs, _ := l.slipway(caller{}, "state", "sign", "demo")
	if !strings.Contains(errs, "somebody has restored earlier documents") {
		t.Errorf("the review does not tell that the documents are earlier ones:\n%s", errs)
	}

	w.put("addons/secrets/registry", now)
	w.put("signature.json", last)
	l.must(caller{}, 0, publish...)
	l.must(reader, 0, "plan", "demo")

	l.must(caller{}, 0, "addons", "secrets", "delete", "registry", "--name", "demo", "--yes")
	w.put("addons/secrets/registry", now)
	w.put("signature.json", last)
	l.refusedAsOlder("a deleted secret", reader, addonCommands(channel))
}

// refusedAsOlder checks that commands are refused because the documents are older than the last ones, and those that change
// documents too: they would sign what was restored.
func (l *lab) refusedAsOlder(what string, reader caller, commands [][]string) {
	l.Helper()
	config := l.temporaryFile("config.json", `{"auths": {"other.example.com": {"username": "u", "password": "p"}}}`)
	group := l.temporaryFile("group.yaml", smallGroup)
	before := l.read("signature.json")
	for _, args := range append(
		commands,
		[]string{"plan", "demo"},
		[]string{"apply", "demo", "--yes"},
		[]string{"replace", "-f", group, "--yes"},
		[]string{"addons", "secrets", "set", "other", "--name", "demo", "-f", config, "--yes"},
		[]string{"delete", "group", "workers", "--name", "demo", "--yes"},
	) {
		l.refused(what, caller{}, args, older)
	}

	l.refused(what, reader, []string{"plan", "demo"}, older)
	if !bytes.Equal(before, l.read("signature.json")) {
		l.Errorf("%s: a command has signed it", what)
	}
}

// clusterID returns the id of the cluster demo.
func (l *lab) clusterID() string {
	l.Helper()
	var record struct{ ID string }
	l.check(json.Unmarshal(l.read("ownership.json"), &record))

	return record.ID
}

// TestReviewShowsHashes: whoever can write to the bucket replaces a document between the moment in which an operator writes it
// and the one in which it is signed. The review has its hash, which is not that of the operator's file. Seen to succeed while the
// review had no hashes.
func TestReviewShowsHashes(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	w := l.writer()
	l.putAddon(settingsAddon)
	l.putAsRoot("addons/settings.yaml", []byte(settingsAddon+"# of the operator\n"))
	w.put("addons/settings.yaml", []byte(administratorAddon))
	w.put("addons/added.yaml", []byte(administratorAddon))

	sum := func(text string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(text))) }
	_, errs, _ := l.slipway(caller{}, "state", "sign", "demo")
	for _, line := range []string{
		"~ demo/addons/settings.yaml: sha256 " + sum(administratorAddon) + ", was " + sum(settingsAddon),
		"+ demo/addons/added.yaml: sha256 " + sum(administratorAddon),
		"demo/cluster.yaml: sha256 " + sum(string(l.read("cluster.yaml"))),
	} {
		if !strings.Contains(errs, line) {
			t.Errorf("the review lacks %s:\n%s", line, errs)
		}
	}
}

// TestPutAddonSignsTheFile: whoever can write to the bucket exchanges a document before and after an operator writes it. What is
// signed is the content of the operator's file. Seen to succeed while what the bucket had was signed.
func TestPutAddonSignsTheFile(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	w := l.writer()
	render := addonCommands(l.temporaryFile("channel.yaml", stateChannel))[0]
	file := l.temporaryFile("settings.yaml", settingsAddon)
	put := []string{"addons", "put", file, "--name", "demo"}

	w.put("addons/settings.yaml", []byte(administratorAddon))
	_, errs, _ := l.slipway(caller{}, put...)
	if sum := fmt.Sprintf("%x", sha256.Sum256([]byte(settingsAddon))); !strings.Contains(errs, sum) {
		t.Errorf("the hash of the file is not shown:\n%s", errs)
	}

	l.refused("a document that was not written", caller{}, render, unsigned)
	l.must(caller{}, 0, append(put, "--yes")...)
	if out := l.must(caller{}, 0, render...); !strings.Contains(out, "color: blue") {
		t.Errorf("the document is not that of the file:\n%s", out)
	}

	w.put("addons/settings.yaml", []byte(administratorAddon))
	l.refused("an exchanged document", caller{}, render, "demo/addons/settings.yaml", unsigned)
}

// TestRolledBackAddonWithItsSignature: whoever can write to the bucket restores an earlier document of an add-on together
// with the signature of that time, before any apply has followed. Seen to succeed.
func TestRolledBackAddonWithItsSignature(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	w := l.writer()
	reader := l.user("reader", l.policies("demo", "--read-only"))
	channel := l.temporaryFile("channel.yaml", stateChannel)
	l.putAddon(administratorAddon)
	signature := w.read("signature.json")
	l.putAddon(settingsAddon)
	last := w.read("signature.json")

	w.put("addons/settings.yaml", []byte(administratorAddon))
	w.put("signature.json", signature)
	l.refusedAsOlder("an earlier add-on", reader, addonCommands(channel))

	// Whoever has restored a backup signs it, and everything works again.
	l.must(caller{}, 0, "state", "sign", "demo", "--yes")
	l.must(caller{}, 0, addonCommands(channel)[0]...)
	w.put("addons/settings.yaml", []byte(settingsAddon))
	w.put("signature.json", last)
	l.refusedAsOlder("the documents before the backup", reader, addonCommands(channel))
}

// TestForgedPublishedChannels: whoever can write to the bucket forges the channels that the control plane applies, or puts
// another sealed object in their place. They are sealed with the key of the store. An earlier publication is refused by its
// serial: go test ./internal/machine/agent -run TestPublished. Never open: the sealed channels and this test were made together.
func TestForgedPublishedChannels(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	w := l.writer()
	channel := l.temporaryFile("channel.yaml", stateChannel)
	l.putAddon(settingsAddon)
	publish := addonCommands(channel)[1]
	l.must(caller{}, 0, publish...)
	published := w.read("machine/secrets/addon-channels")
	others := l.objectsBelow("team/demo/machine/secrets/k")
	if len(others) == 0 {
		t.Fatal("there is no other secret")
	}

	for what, body := range map[string][]byte{
		"a plain channel": []byte(`{"kind": "PublishedAddonChannels"}`),
		"another secret":  w.read(strings.TrimPrefix(others[0], "team/demo/")),
		"changed bytes":   []byte(strings.Replace(string(published), `"`, `" `, 1) + "x"),
	} {
		w.put("machine/secrets/addon-channels", body)
		l.refused(what, caller{}, publish, "demo/machine/secrets/addon-channels")
	}
}

// TestAddonDocumentsOfAnOlderSlipway: a cluster without a signature still works, with a warning. Its next apply signs the
// documents of its add-ons as well. No attack: what signing must not break.
func TestAddonDocumentsOfAnOlderSlipway(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	l.makeOld()
	l.putAsRoot("addons/settings.yaml", []byte(settingsAddon))
	channel := l.temporaryFile("channel.yaml", stateChannel)
	for _, args := range addonCommands(channel) {
		out, errs, code := l.slipway(caller{}, args...)
		if code != 0 || !strings.Contains(errs, "has no signature in "+stateURL) {
			t.Errorf("%q: exit %d\n%s%s", args, code, out, errs)
		}
	}

	l.must(caller{}, 0, "apply", "demo", "--yes")
	l.writer().put("addons/settings.yaml", []byte(administratorAddon))
	for _, args := range addonCommands(channel) {
		l.refused("an edited add-on", caller{}, args, "demo/addons/settings.yaml", unsigned)
	}
}

// TestUnsignedDocumentsAreListed: whoever can write to the bucket adds documents of add-ons to a cluster without a signature,
// whose next apply signs them. The plan and the apply list each document that the apply signs, with its hash, and a saved plan
// signs no others. Seen to succeed while no plan listed them.
func TestUnsignedDocumentsAreListed(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	reader := l.user("reader", l.policies("demo", "--read-only"))
	l.makeOld()
	w := l.writer()
	l.putAsRoot("addons/settings.yaml", []byte(settingsAddon))
	saved := filepath.Join(l.dir, "saved.plan")
	l.must(caller{}, 0, "plan", "demo", "--out", saved)
	w.put("addons/settings.yaml", []byte(administratorAddon))

	sum := fmt.Sprintf("%x", sha256.Sum256([]byte(administratorAddon)))
	line := "demo/addons/settings.yaml: sha256 " + sum
	if out := l.must(caller{}, 0, "plan", "demo"); !strings.Contains(out, line) || !strings.Contains(out, "demo/cluster.yaml: sha256 ") {
		t.Errorf("the plan lacks %s:\n%s", line, out)
	}

	if out := l.must(caller{}, 0, "plan", "demo", "-o", "json"); !strings.Contains(out, `"demo/addons/settings.yaml"`) || !strings.Contains(out, sum) {
		t.Errorf("the plan in JSON lacks %s:\n%s", line, out)
	}

	if out := l.must(reader, 0, "plan", "demo"); !strings.Contains(out, "demo/cluster.yaml: sha256 ") {
		t.Errorf("the plan of a reader lists no documents:\n%s", out)
	}

	l.refused("a document that the saved plan does not list", caller{}, []string{"apply", saved, "--yes"}, "is stale")
	if out := l.must(caller{}, 0, "apply", "demo"); !strings.Contains(out, line) || l.read("signature.json") != nil {
		t.Errorf("without an approval, signature %q:\n%s", l.read("signature.json"), out)
	}

	if out := l.must(caller{}, 0, "apply", "demo", "--yes"); !strings.Contains(out, line) {
		t.Errorf("the apply lacks %s:\n%s", line, out)
	}

	if out := l.must(caller{}, 0, "plan", "demo"); strings.Contains(out, "sha256 "+sum) {
		t.Errorf("signed documents are listed:\n%s", out)
	}
}

// TestSavedPlanOfAnAttacker: whoever can write to the bucket replaces all authorities before the first apply, and signs
// everything with them. Applying a saved plan compares them with the key, too, before it begins. Seen to fail only after it had
// begun.
func TestSavedPlanOfAnAttacker(t *testing.T) {
	l := newLab(t)
	l.must(caller{}, 0, "create", "cluster", "demo", "--zones", "us-east-1a", "--yes")
	l.forgeEverything()
	saved := filepath.Join(l.dir, "saved.plan")
	l.must(caller{}, 2, "plan", "demo", "--out", saved)
	l.refused("before the first apply", caller{}, []string{"apply", saved, "--yes"}, "the key does not match the first certificate")
	if l.read("applied.json") != nil {
		t.Error("the apply has begun")
	}
}
