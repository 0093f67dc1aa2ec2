// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go/service/s3"
)

// prepareLifecycle checks a new lifecycle configuration, and gives rules without an ID one, as S3 does.
func prepareLifecycle(v *s3.BucketLifecycleConfiguration) error {
	if err := validateLifecycle(v); err != nil {
		return err
	}

	for _, rule := range v.Rules {
		if stringValue(rule.ID) == "" {
			rule.ID = new(randomHex())
		}
	}

	return nil
}

// expirationOf returns what S3 tells about the expiration of v, the current version of a key: its date, and the rule of the
// bucket's lifecycle that sets it. It returns nil if there is no such rule. Nothing expires in this region.
func expirationOf(s *Service, bucketName *string, key string, v objectVersion) *string {
	var saved json.RawMessage
	err := s.viewBucket(bucketName, func(b *bucket) error {
		saved = b.Config[lifecycleSettingName]
		return nil
	})
	if err != nil || saved == nil {
		return nil // also if the bucket was deleted meanwhile
	}

	var lifecycle s3.BucketLifecycleConfiguration
	if err := json.Unmarshal(saved, &lifecycle); err != nil {
		return nil
	}

	rule, date := firstExpiration(lifecycle.Rules, key, v)
	if rule == nil {
		return nil
	}

	return new(fmt.Sprintf(
		`expiry-date="%s", rule-id="%s"`,
		date.Format(http.TimeFormat),
		strings.ReplaceAll(url.QueryEscape(stringValue(rule.ID)), "+", "%20"),
	))
}

// firstExpiration returns the rule that lets a version expire first, and the date; of several with one date the first rule.
// It returns nil if the version does not expire.
func firstExpiration(rules []*s3.LifecycleRule, key string, v objectVersion) (*s3.LifecycleRule, time.Time) {
	var found *s3.LifecycleRule
	var first time.Time

	for _, rule := range rules {
		date, ok := expirationDate(rule.Expiration, v.Modified)
		if !ok || stringValue(rule.Status) != s3.ExpirationStatusEnabled || !appliesTo(rule, key, v.Size) {
			continue
		}

		if found == nil || date.Before(first) {
			found = rule
			first = date
		}
	}

	return found, first
}

// expirationDate returns the date on which an object that was written at a time expires: days count to the next midnight. ok
// is false if the object does not expire.
func expirationDate(e *s3.LifecycleExpiration, written time.Time) (date time.Time, ok bool) {
	switch {
	case e == nil:
		return time.Time{}, false
	case e.Date != nil:
		return e.Date.UTC(), true
	case e.Days != nil:
		return written.UTC().Truncate(24*time.Hour).AddDate(0, 0, int(*e.Days)+1), true
	}

	return time.Time{}, false
}

// appliesTo reports whether a rule is for an object of a size in bytes. A rule for tags is for none: objects have no tags here.
func appliesTo(rule *s3.LifecycleRule, key string, size int64) bool {
	scope := s3.LifecycleRuleAndOperator{Prefix: rule.Prefix} //nolint:staticcheck // clients still send the prefix
	if f := rule.Filter; f != nil && f.And != nil {
		scope = *f.And
	} else if f != nil {
		scope.Prefix = f.Prefix
		scope.ObjectSizeGreaterThan = f.ObjectSizeGreaterThan
		scope.ObjectSizeLessThan = f.ObjectSizeLessThan
		if f.Tag != nil {
			scope.Tags = []*s3.Tag{f.Tag}
		}
	}

	switch {
	case len(scope.Tags) > 0,
		!strings.HasPrefix(key, stringValue(scope.Prefix)),
		scope.ObjectSizeGreaterThan != nil && size <= *scope.ObjectSizeGreaterThan,
		scope.ObjectSizeLessThan != nil && size >= *scope.ObjectSizeLessThan:
		return false
	}

	return true
}
