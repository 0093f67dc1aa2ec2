// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"encoding/json"
	"errors"
	"io"
	"path/filepath"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
)

func asAPIError(err error, target *smithy.APIError) bool { return errors.As(err, target) }

// TestReaderCannotBecomeAdministrator: a user of the read-only policy exports an administrator's kubeconfig, and
// reads and opens each sealed key. Seen to succeed before the policy listed the readable objects (exit 0, all keys
// of the cluster decrypted).
func TestReaderCannotBecomeAdministrator(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	reader := l.user("reader", l.policies("demo", "--read-only"))

	_, errs, code := l.slipway(reader, "export", "kubeconfig", "demo", "--kubeconfig", filepath.Join(l.dir, "stolen"))
	if code == 0 {
		t.Error("the reader exported an administrator's kubeconfig")
	}

	if !strings.Contains(errs, "AccessDenied") {
		t.Errorf("not refused by IAM: %s", errs)
	}

	sealed := 0

	for _, key := range l.objects() {
		if !strings.Contains(key, "/pki/private/") && !strings.Contains(key, "/machine/secrets/") {
			continue
		}

		sealed++
		_, err := l.s3(reader).GetObject(t.Context(), &s3.GetObjectInput{Bucket: sdk.String(bucket), Key: &key})
		l.denied("read "+key, err)
		l.denied("open "+key, l.openSealed(reader, key))
	}

	if sealed < 10 {
		t.Errorf("the store has only %d sealed keys", sealed)
	}
}

// openSealed decrypts the data key of a sealed object as c; the object itself is read as root, as if it had leaked.
func (l *lab) openSealed(c caller, key string) error {
	l.Helper()
	o, err := l.s3(caller{}).GetObject(l.Context(), &s3.GetObjectInput{Bucket: sdk.String(bucket), Key: &key})
	l.check(err)

	body, err := io.ReadAll(o.Body)
	l.check(err)

	var envelope struct {
		DataKey []byte `json:"dataKey"`
	}
	l.check(json.Unmarshal(body, &envelope))

	bound := map[string]string{"slipway.dev/cluster": "demo"}
	if strings.Contains(key, "/pki/private/") {
		bound["slipway.dev/key"] = filepath.Base(key)
	}

	_, err = kms.NewFromConfig(l.config(c)).Decrypt(l.Context(), &kms.DecryptInput{
		CiphertextBlob:    envelope.DataKey,
		EncryptionContext: bound,
	})

	return err
}

// TestReaderStillReads: the read-only policy is enough for the commands that only read. No attack: what the limits of readers must not
// break.
func TestReaderStillReads(t *testing.T) {
	l := newLab(t)
	l.createCluster()
	reader := l.user("reader", l.policies("demo", "--read-only"))
	l.must(reader, 0, "plan", "demo")
	l.must(reader, 0, "get", "clusters", "demo", "-o", "yaml")
	l.must(reader, 0, "get", "groups", "demo")
	l.must(reader, 0, "get", "machines", "demo")
	l.must(reader, 0, "drift", "demo")
	l.must(reader, 0, "history", "demo")

	text := l.must(reader, 0, "get", "clusters", "demo", "-o", "yaml") + "---\n" + l.must(reader, 0, "get", "groups", "demo", "-o", "yaml")
	file := l.temporaryFile("demo.yaml", strings.ReplaceAll(text, "machineType: t3.large", "machineType: t3.xlarge"))
	l.must(reader, 2, "diff", "-f", file)

	out, errs, code := l.slipway(reader, "validate", "cluster", "demo") // this region runs no machines
	if code != 2 {
		t.Errorf("validate: exit %d\n%s%s", code, out, errs)
	}

	t.Logf("validate as the reader:\n%s%s", out, errs)
}
