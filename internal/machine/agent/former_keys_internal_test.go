// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/slipway-k8s/slipway/internal/lib/asset/assettest"
	"github.com/slipway-k8s/slipway/internal/lib/pki"
	"github.com/slipway-k8s/slipway/internal/lib/store"
	"github.com/slipway-k8s/slipway/internal/machine/etcd"
	"github.com/slipway-k8s/slipway/internal/machine/kube"
)

// checkFormerKey starts an API server as a cluster with another encryption key has it after it was restored from this one. It
// reads the Secrets of before, and writes with its own key.
func checkFormerKey(t *testing.T, a *Agent, m mapped, server []string) {
	t.Helper()
	key, err := pki.NewKey(pki.EncryptionKey)
	if err != nil {
		t.Fatal(err)
	}
	restored := a.withDocument(a.doc)
	restored.bundle.Encryption = key
	before := &formerKeys{keys: []pki.Key{a.bundle.Encryption}}
	restored.former = before
	files, err := restored.controlPlaneFiles()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(files, func(f File) bool { return f.Path == kube.SecretDir+"/encryption.yaml" })
	config := filepath.Join(t.TempDir(), "encryption.yaml")
	if err := os.WriteFile(config, files[i].Body, 0o600); err != nil {
		t.Fatal(err)
	}
	port := freePorts(t, 1)[0]
	args := slices.Clone(server)
	for i := range args {
		switch {
		case strings.HasPrefix(args[i], "--secure-port="):
			args[i] = "--secure-port=" + port
		case strings.HasPrefix(args[i], "--encryption-provider-config="):
			args[i] = "--encryption-provider-config=" + config
		}
	}
	run(t, "kube-apiserver", assettest.Program(t, "kubernetes", "bin/kubernetes"), args, nil)
	api := a.newAdminClient()
	api.Server = "https://127.0.0.1:" + port
	var secret struct {
		Data map[string][]byte `json:"data"`
	}
	eventually(t, "a secret of the other cluster is read", func() error {
		return api.Get(t.Context(), "/api/v1/namespaces/default/secrets/s", &secret)
	})
	if string(secret.Data["k"]) != "plain-text" {
		t.Errorf("the secret has become %q", secret.Data)
	}
	stored := func() []byte {
		value, err := etcd.ReadKey(t.Context(), a.newEtcdManager(), m.Replace(etcd.ClientURL), "/registry/secrets/default/s")
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
	old := stored()
	var object map[string]any
	if err := api.Get(t.Context(), "/api/v1/namespaces/default/secrets/s", &object); err != nil {
		t.Fatal(err)
	}
	body, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.Do(t.Context(), "PUT", "/api/v1/namespaces/default/secrets/s", "application/json", body); err != nil {
		t.Fatal(err)
	}
	if now := stored(); bytes.Equal(now, old) || !bytes.HasPrefix(now, []byte("k8s:enc:secretbox:v1:key1:")) {
		t.Error("a replaced secret still has the key of the other cluster")
	}
}

// TestFormerKeysAreRead: an agent reads a key that was published after its start, and writes it where the API server reads it.
func TestFormerKeysAreRead(t *testing.T) {
	a := testAgent(t)
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	a.Sealer = store.NewAgeSealer(id)
	a.former = &formerKeys{}
	m := &etcdMember{agent: a, store: store.NewFileStore(t.TempDir())}
	config := a.Root.Path(kube.SecretDir + "/encryption.yaml")
	count := func() int {
		if err := m.readFormerKeys(t.Context()); err != nil {
			t.Fatal(err)
		}
		body, err := os.ReadFile(config)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Count(body, []byte("- secretbox:"))
	}
	if got := count(); got != 1 {
		t.Errorf("%d keys without a restoration", got)
	}
	key, err := pki.NewKey(pki.EncryptionKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := pki.PublishFormerKey(t.Context(), m.store, a.Sealer, a.doc.Cluster, key); err != nil {
		t.Fatal(err)
	}
	if got := count(); got != 2 {
		t.Errorf("%d keys after a restoration from another cluster", got)
	}
	// The agent of a new document shares the keys: it must not write a file without them.
	if keys, err := a.withDocument(a.doc).former.derive(); err != nil || len(keys) != 1 {
		t.Error(errors.Join(errors.New("the agent of a new document has no former keys"), err))
	}
}
