// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
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
		l.refused("an earlier state", caller{}, args, "is older than the one that was applied last")
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

// TestAddonDocumentsOfAnAttacker: whoever can write to the bucket replaces the authorities and signs everything with them.
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
	set := func(password string) {
		config := `{"auths": {"registry.example.com": {"username": "u", "password": "` + password + `"}}}`
		l.must(caller{}, 0, "addons", "secrets", "set", "registry", "--name", "demo", "-f", l.temporaryFile("config.json", config), "--yes")
	}

	set("lost")
	lost := w.read("addons/secrets/registry")
	set("new")
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

// TestForgedPublishedChannels: whoever can write to the bucket forges the channels that the control plane applies, or puts
// another sealed object in their place. They are sealed with the key of the store. An earlier publication is refused by its
// serial: go test ./internal/machine/agent -run TestPublished.
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
// documents of its add-ons as well.
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
