// SPDX-License-Identifier: Apache-2.0

package s3_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	regions3 "github.com/slipway-k8s/slipway/internal/region/s3"
)

// lifecycleLab is a bucket whose lifecycle a test sets.
type lifecycleLab struct {
	*testing.T
	*s3.Client
	name *string
}

func newLifecycleLab(t *testing.T, rules ...types.LifecycleRule) lifecycleLab {
	t.Helper()
	c, _, _ := serveWith(t, regions3.Config{
		Dir: t.TempDir(), Region: "us-east-1", Now: func() time.Time { return time.Date(2026, 2, 27, 23, 59, 59, 0, time.UTC) },
	})
	bucket(t, c)
	l := lifecycleLab{T: t, Client: c, name: aws.String(b1)}
	l.setRules(rules...)

	return l
}

func (l lifecycleLab) setRules(rules ...types.LifecycleRule) {
	l.Helper()
	_, err := l.PutBucketLifecycleConfiguration(l.Context(), &s3.PutBucketLifecycleConfigurationInput{
		Bucket: l.name, LifecycleConfiguration: &types.BucketLifecycleConfiguration{Rules: rules},
	})
	if err != nil {
		l.Fatal(err)
	}
}

// put writes an object and returns what S3 tells about its expiration, and its version.
func (l lifecycleLab) put(key string, size int) (expiration, version string) {
	l.Helper()
	out, err := l.PutObject(l.Context(), &s3.PutObjectInput{Bucket: l.name, Key: &key, Body: bytes.NewReader(make([]byte, size))})
	if err != nil {
		l.Fatal(err)
	}

	return aws.ToString(out.Expiration), aws.ToString(out.VersionId)
}

// read returns what HeadObject and GetObject tell about the expiration of a version; empty for the current one.
func (l lifecycleLab) read(key, version string) string {
	l.Helper()
	var id *string
	if version != "" {
		id = &version
	}

	head, err := l.HeadObject(l.Context(), &s3.HeadObjectInput{Bucket: l.name, Key: &key, VersionId: id})
	if err != nil {
		l.Fatal(err)
	}

	got, err := l.GetObject(l.Context(), &s3.GetObjectInput{Bucket: l.name, Key: &key, VersionId: id})
	if err != nil {
		l.Fatal(err)
	}
	defer func() { _ = got.Body.Close() }()

	if aws.ToString(head.Expiration) != aws.ToString(got.Expiration) {
		l.Errorf("%s: HeadObject tells %q, GetObject %q", key, aws.ToString(head.Expiration), aws.ToString(got.Expiration))
	}

	return aws.ToString(got.Expiration)
}

func expireAfter(id string, days int32, filter types.LifecycleRuleFilter) types.LifecycleRule {
	return types.LifecycleRule{
		ID: &id, Status: types.ExpirationStatusEnabled, Filter: &filter,
		Expiration: &types.LifecycleExpiration{Days: &days},
	}
}

// expiryAfter returns what S3 tells of an object written on 27 February: the first midnight after so many days.
func expiryAfter(id string, days int) string {
	date := time.Date(2026, 2, 28+days, 0, 0, 0, 0, time.UTC)

	return `expiry-date="` + date.Format("Mon, 02 Jan 2006 15:04:05 GMT") + `", rule-id="` + id + `"`
}

// TestExpirationIsTold: the answers about an object under a rule of the bucket's lifecycle have its expiration, also of an
// object that is older than the rule (LocalStack's recordings of test_bucket_lifecycle_* and test_object_expiry_*).
func TestExpirationIsTold(t *testing.T) {
	t.Parallel()
	l := newLifecycleLab(t, expireAfter("other", 3, types.LifecycleRuleFilter{Prefix: aws.String("o/")}))
	if got, _ := l.put("x", 4); got != "" {
		t.Errorf("an object without a rule: %q", got)
	}

	l.setRules(expireAfter("rule 1&2", 7, types.LifecycleRuleFilter{}))
	want := expiryAfter("rule%201%262", 7)
	if got := l.read("x", ""); got != want {
		t.Errorf("an object that is older than the rule: %q, want %q", got, want)
	}
	if got, _ := l.put("x", 4); got != want {
		t.Errorf("PutObject: %q, want %q", got, want)
	}

	copied, err := l.CopyObject(t.Context(), &s3.CopyObjectInput{Bucket: l.name, Key: aws.String("copy"), CopySource: aws.String(b1 + "/x")})
	if err != nil || aws.ToString(copied.Expiration) != want {
		t.Errorf("CopyObject: %q, %v, want %q", aws.ToString(copied.Expiration), err, want)
	}
	if got := l.upload("parts"); got != want {
		t.Errorf("CompleteMultipartUpload: %q, want %q", got, want)
	}
}

// upload writes an object in one part and returns what S3 tells about its expiration.
func (l lifecycleLab) upload(key string) string {
	l.Helper()
	made, err := l.CreateMultipartUpload(l.Context(), &s3.CreateMultipartUploadInput{Bucket: l.name, Key: &key})
	if err != nil {
		l.Fatal(err)
	}

	part, err := l.UploadPart(l.Context(), &s3.UploadPartInput{
		Bucket: l.name, Key: &key, UploadId: made.UploadId, PartNumber: aws.Int32(1), Body: strings.NewReader("part"),
	})
	if err != nil {
		l.Fatal(err)
	}

	done, err := l.CompleteMultipartUpload(l.Context(), &s3.CompleteMultipartUploadInput{
		Bucket: l.name, Key: &key, UploadId: made.UploadId,
		MultipartUpload: &types.CompletedMultipartUpload{Parts: []types.CompletedPart{{PartNumber: aws.Int32(1), ETag: part.ETag}}},
	})
	if err != nil {
		l.Fatal(err)
	}

	return aws.ToString(done.Expiration)
}

// TestExpirationIsOfTheCurrentVersion: a read of a version by its id does not tell it, even of the current one.
func TestExpirationIsOfTheCurrentVersion(t *testing.T) {
	t.Parallel()
	rule := expireAfter("r", 3, types.LifecycleRuleFilter{})
	rule.NoncurrentVersionExpiration = &types.NoncurrentVersionExpiration{NoncurrentDays: aws.Int32(1)}
	l := newLifecycleLab(t, rule)
	if _, err := l.PutBucketVersioning(t.Context(), &s3.PutBucketVersioningInput{
		Bucket: l.name, VersioningConfiguration: &types.VersioningConfiguration{Status: types.BucketVersioningStatusEnabled},
	}); err != nil {
		t.Fatal(err)
	}

	_, first := l.put("x", 1)
	_, second := l.put("x", 1)
	if got, want := l.read("x", ""), expiryAfter("r", 3); got != want {
		t.Errorf("the current version: %q, want %q", got, want)
	}
	for _, version := range []string{first, second} {
		if got := l.read("x", version); got != "" {
			t.Errorf("version %s: %q", version, got)
		}
	}
}

// TestExpirationRules: the rule that lets an object expire first counts, and the first one of several with the same date.
// Rules that are disabled, that remove delete markers or that are for tags, which objects do not have here, do not count.
func TestExpirationRules(t *testing.T) {
	t.Parallel()
	disabled := expireAfter("disabled", 1, types.LifecycleRuleFilter{})
	disabled.Status = types.ExpirationStatusDisabled
	marker := expireAfter("marker", 1, types.LifecycleRuleFilter{})
	marker.Expiration = &types.LifecycleExpiration{ExpiredObjectDeleteMarker: aws.Bool(true)}
	dated := expireAfter("dated", 1, types.LifecycleRuleFilter{Prefix: aws.String("dated/")})
	dated.Expiration = &types.LifecycleExpiration{Date: aws.Time(time.Date(2099, 1, 2, 0, 0, 0, 0, time.UTC))}
	old := expireAfter("old", 9, types.LifecycleRuleFilter{})
	old.Filter = nil
	old.Prefix = aws.String("old/") //nolint:staticcheck // clients still send the prefix
	l := newLifecycleLab(t, disabled, marker, dated, old,
		expireAfter("tag", 1, types.LifecycleRuleFilter{Tag: &types.Tag{Key: aws.String("k"), Value: aws.String("v")}}),
		expireAfter("tags", 1, types.LifecycleRuleFilter{And: &types.LifecycleRuleAndOperator{
			Prefix: aws.String(""), Tags: []types.Tag{{Key: aws.String("k"), Value: aws.String("v")}},
		}}),
		expireAfter("late", 5, types.LifecycleRuleFilter{Prefix: aws.String("p")}),
		expireAfter("one", 4, types.LifecycleRuleFilter{Prefix: aws.String("p/")}),
		expireAfter("another", 4, types.LifecycleRuleFilter{Prefix: aws.String("p/x")}),
		expireAfter("big", 6, types.LifecycleRuleFilter{ObjectSizeGreaterThan: aws.Int64(20)}),
		expireAfter("small", 6, types.LifecycleRuleFilter{ObjectSizeLessThan: aws.Int64(10)}),
		expireAfter("both", 2, types.LifecycleRuleFilter{And: &types.LifecycleRuleAndOperator{
			Prefix: aws.String("p/"), ObjectSizeGreaterThan: aws.Int64(14), ObjectSizeLessThan: aws.Int64(16),
		}}),
	)

	for name, test := range map[string]struct {
		key  string
		size int
		want string
	}{
		"no rule":             {"x", 15, ""},
		"the earliest":        {"p/x", 14, expiryAfter("one", 4)},
		"a longer prefix":     {"p-x", 14, expiryAfter("late", 5)},
		"big":                 {"x", 21, expiryAfter("big", 6)},
		"not big":             {"x", 20, ""},
		"small":               {"x", 9, expiryAfter("small", 6)},
		"not small":           {"x", 10, ""},
		"all of a rule's":     {"p/x", 15, expiryAfter("both", 2)},
		"the older prefix":    {"old/x", 15, expiryAfter("old", 9)},
		"a date":              {"dated/x", 15, `expiry-date="Fri, 02 Jan 2099 00:00:00 GMT", rule-id="dated"`},
		"the days come first": {"dated/x", 21, expiryAfter("big", 6)},
	} {
		if got, _ := l.put(test.key, test.size); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestRulesGetIDs: a rule without an ID gets one, which is told with the expiration.
func TestRulesGetIDs(t *testing.T) {
	t.Parallel()
	rule := expireAfter("", 7, types.LifecycleRuleFilter{Prefix: aws.String("")})
	rule.ID = nil
	l := newLifecycleLab(t, rule, rule)
	out, err := l.GetBucketLifecycleConfiguration(t.Context(), &s3.GetBucketLifecycleConfigurationInput{Bucket: l.name})
	if err != nil || len(out.Rules) != 2 {
		t.Fatalf("GetBucketLifecycleConfiguration: %+v, %v", out, err)
	}

	first, second := aws.ToString(out.Rules[0].ID), aws.ToString(out.Rules[1].ID)
	if first == "" || first == second {
		t.Errorf("the rules have the IDs %q and %q", first, second)
	}
	if got, _ := l.put("x", 1); got != expiryAfter(first, 7) {
		t.Errorf("the expiration is %q, want that of rule %s", got, first)
	}
}
