// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
)

// slowKeys is KMS, which lets nobody use a new key before its tag counts.
type slowKeys struct {
	exists   bool          // the key has its alias
	age      time.Duration // of a key that exists
	usableAt time.Time
	created  int
	tagged   int
}

func (k *slowKeys) DescribeKey(
	context.Context, *kms.DescribeKeyInput, ...func(*kms.Options),
) (*kms.DescribeKeyOutput, error) {
	if !k.exists {
		return nil, &smithy.GenericAPIError{Code: "NotFoundException"}
	}

	return &kms.DescribeKeyOutput{KeyMetadata: &kmstypes.KeyMetadata{
		Arn: aws.String("arn"), Origin: kmstypes.OriginTypeAwsKms, KeyState: kmstypes.KeyStateEnabled,
		CreationDate: aws.Time(time.Now().Add(-k.age)),
	}}, nil
}

func (k *slowKeys) CreateKey(
	context.Context, *kms.CreateKeyInput, ...func(*kms.Options),
) (*kms.CreateKeyOutput, error) {
	k.created++

	return &kms.CreateKeyOutput{KeyMetadata: &kmstypes.KeyMetadata{Arn: aws.String("arn")}}, nil
}

// TagResource is allowed by the policy of the new key, until the tag counts.
func (k *slowKeys) TagResource(
	_ context.Context, in *kms.TagResourceInput, _ ...func(*kms.Options),
) (*kms.TagResourceOutput, error) {
	k.tagged++
	if len(in.Tags) != 1 || *in.Tags[0].TagKey != stateKeyTag || *in.Tags[0].TagValue != "b" {
		return nil, &smithy.GenericAPIError{Code: "TagException"}
	}

	return &kms.TagResourceOutput{}, nil
}

func (k *slowKeys) GetKeyPolicy(
	context.Context, *kms.GetKeyPolicyInput, ...func(*kms.Options),
) (*kms.GetKeyPolicyOutput, error) {
	policy, err := newStateKeyPolicy("aws", "123456789012", "AIDAOTHER")

	return &kms.GetKeyPolicyOutput{Policy: &policy}, err
}

func (k *slowKeys) ListGrants(
	context.Context, *kms.ListGrantsInput, ...func(*kms.Options),
) (*kms.ListGrantsOutput, error) {
	return &kms.ListGrantsOutput{}, k.use("AccessDeniedException")
}

func (k *slowKeys) ListResourceTags(
	context.Context, *kms.ListResourceTagsInput, ...func(*kms.Options),
) (*kms.ListResourceTagsOutput, error) {
	return &kms.ListResourceTagsOutput{Tags: []kmstypes.Tag{{TagKey: aws.String(stateKeyTag), TagValue: aws.String("b")}}}, nil
}

// fixedCaller is a caller of AWS.
type fixedCaller struct{}

func (fixedCaller) GetCallerIdentity(
	context.Context, *sts.GetCallerIdentityInput, ...func(*sts.Options),
) (*sts.GetCallerIdentityOutput, error) {
	return &sts.GetCallerIdentityOutput{Account: aws.String("123456789012"), UserId: aws.String("AIDAEXAMPLE")}, nil
}

func (k *slowKeys) use(code string) error {
	if time.Now().Before(k.usableAt) {
		return &smithy.GenericAPIError{Code: code, Message: "no identity-based policy allows it"}
	}

	return nil
}

func (k *slowKeys) CreateAlias(
	context.Context, *kms.CreateAliasInput, ...func(*kms.Options),
) (*kms.CreateAliasOutput, error) {
	err := k.use("AccessDeniedException")
	k.exists = k.exists || err == nil

	return &kms.CreateAliasOutput{}, err
}

func (k *slowKeys) EnableKeyRotation(
	context.Context, *kms.EnableKeyRotationInput, ...func(*kms.Options),
) (*kms.EnableKeyRotationOutput, error) {
	return &kms.EnableKeyRotationOutput{}, k.use("AccessDeniedException")
}

// TestInitWaitsUntilTheKeyMayBeUsed: KMS may take five minutes until the tag and the alias of a new key count in policies.
// What an older key refuses is an error at once, and so is what is refused for longer.
func TestInitWaitsUntilTheKeyMayBeUsed(t *testing.T) {
	for name, tc := range map[string]struct {
		exists  bool
		age     time.Duration
		delay   time.Duration
		fails   bool
		reports int
		most    time.Duration
	}{
		"at once":        {most: time.Second}, // one repetition, until KMS shows the alias
		"late":           {delay: 5 * time.Minute, reports: 1, most: 6 * time.Minute},
		"never":          {delay: time.Hour, fails: true, reports: 1, most: 7 * time.Minute},
		"an older key":   {exists: true, age: time.Hour},
		"denied for one": {exists: true, age: time.Hour, delay: time.Hour, fails: true},
		// A killed run of somebody else has created the key, whose policy allows that run alone what IAM allows by the tag.
		"of another run":       {exists: true, age: time.Minute, delay: 4 * time.Minute, reports: 1, most: 5 * time.Minute},
		"never of another run": {exists: true, age: time.Minute, delay: time.Hour, fails: true, reports: 1, most: 7 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var reports []string
				begin := time.Now()
				keys := &slowKeys{exists: tc.exists, age: tc.age, usableAt: begin.Add(tc.delay)}
				m := s3Initializer{
					keys:     keys,
					caller:   fixedCaller{},
					bucket:   "b",
					region:   "us-east-1",
					settings: &Settings{},
					key:      &keyAuthorization{report: func(message string) { reports = append(reports, message) }},
				}

				settings := InitStep{Description: SettingsKey, run: func(context.Context) error { return keys.use("AccessDenied") }}
				steps := []InitStep{{Description: "key", run: m.ensureKMSKey}, m.encryptedStep(settings)}
				err := RunInitSteps(t.Context(), steps, func(InitStep) {})
				if took := time.Since(begin); (err != nil) != tc.fails || took > tc.most {
					t.Errorf("%v after %s", err, took)
				}

				if len(reports) != tc.reports || keys.created > 1 || keys.tagged != keys.created {
					t.Errorf("%d keys, %d tagged, reports: %q", keys.created, keys.tagged, reports)
				}

				if tc.fails && tc.reports > 0 && !strings.Contains(err.Error(), "KMS still refuses to ") {
					t.Errorf("the cause is not named: %v", err)
				}

				if len(reports) > 0 && !tc.exists && !strings.Contains(reports[0], "to create alias/slipway-b") {
					t.Errorf("reported: %q", reports[0])
				}
			})
		})
	}
}

// TestSettingsWaitUntilTheAliasCounts: S3 writes the first encrypted object once KMS knows the alias of the new key.
func TestSettingsWaitUntilTheAliasCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reports []string
		keys := &slowKeys{}
		m := s3Initializer{
			keys:     keys,
			caller:   fixedCaller{},
			bucket:   "b",
			region:   "us-east-1",
			settings: &Settings{},
			key:      &keyAuthorization{report: func(message string) { reports = append(reports, message) }},
		}
		settings := InitStep{Description: SettingsKey, run: func(context.Context) error { return keys.use("AccessDenied") }}
		steps := []InitStep{{Description: "key", run: m.ensureKMSKey}, m.encryptedStep(settings)}
		err := RunInitSteps(t.Context(), steps, func(s InitStep) {
			if s.Description == "key" {
				keys.usableAt = time.Now().Add(5 * time.Minute)
			}
		})

		if err != nil || len(reports) != 1 || !strings.Contains(reports[0], "to write "+SettingsKey) {
			t.Errorf("%v, reports: %q", err, reports)
		}
	})
}
