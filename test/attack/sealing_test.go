// SPDX-License-Identifier: Apache-2.0

package attack_test

import (
	"io"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	"github.com/aws/aws-sdk-go-v2/service/s3"

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

	text := l.editSettings(func(text string) string { return text })
	_, rest, _ := strings.Cut(text, `"kmsKeyArn": "`)
	own, _, _ := strings.Cut(rest, `"`)
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
