// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"filippo.io/age"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/kms"
	kmstypes "github.com/aws/aws-sdk-go-v2/service/kms/types"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	s3types "github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/slipway-k8s/slipway/internal/lib/diag"
)

// InitStep is one thing that Init does, so that it can be shown before it is done.
type InitStep struct {
	// Description says what it makes, such as bucket my-state.
	Description string
	run         func(context.Context) error
}

// PlanInit returns the steps that make the store at rawURL, or nil if it is there. Every step leaves alone what is done
// already, so that a run that was cut short can be run again.
func PlanInit(ctx context.Context, rawURL string, opts Options) ([]InitStep, error) {
	s, cfg, err := connectStore(ctx, rawURL, opts)
	if err != nil {
		return nil, err
	}

	_, err = s.Get(ctx, SettingsKey)
	if err == nil {
		_, err = readSettings(ctx, s)
		return nil, err
	}

	if !errors.Is(err, ErrNotFound) {
		return nil, err
	}

	if on, ok := s.(*S3Store); ok {
		return planS3Init(on, cfg), nil
	}

	return planFileInit(s, opts)
}

// RunInitSteps carries the steps out, one after the other.
func RunInitSteps(ctx context.Context, steps []InitStep, done func(InitStep)) error {
	for _, step := range steps {
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("make %s: %w", step.Description, err)
		}

		done(step)
	}

	return nil
}

// planFileInit makes an age identity: in a new key file, or sealed with the passphrase in the store itself.
func planFileInit(s Store, opts Options) ([]InitStep, error) {
	if opts.KeyFile == "" && opts.Passphrase == "" {
		return nil, diag.WithHint(errors.New("a state store in a folder needs a key for its secrets"),
			"give --state-key FILE, which will be made if it is not there, or set SLIPWAY_STATE_PASSPHRASE")
	}

	set := &Settings{Version: settingsVersion}
	identity := InitStep{
		"an age identity sealed with the passphrase",
		func(context.Context) error { return createSealedIdentity(set, opts.Passphrase) },
	}
	if opts.KeyFile != "" {
		identity = InitStep{
			"key file " + opts.KeyFile,
			func(context.Context) error { return ensureKeyFile(set, opts.KeyFile) },
		}
	}

	return []InitStep{identity, newSettingsStep(s, set)}, nil
}

// ensureKeyFile takes the key file's identity, or makes the file. It never overwrites one.
func ensureKeyFile(set *Settings, file string) error {
	text, err := os.ReadFile(file)
	if err == nil {
		id, err := parseIdentity(text)
		if err != nil {
			return err
		}

		set.Recipient = id.Recipient().String()

		return nil
	}

	if !errors.Is(err, os.ErrNotExist) {
		return err
	}

	id, err := age.GenerateX25519Identity()
	if err != nil {
		return err
	}

	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}

	out, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}

	_, err = fmt.Fprintf(
		out,
		"# slipway state key; without it the state's secrets are lost\n# public key: %s\n%s\n",
		id.Recipient(),
		id,
	)

	set.Recipient = id.Recipient().String()

	return errors.Join(err, out.Sync(), out.Close())
}

func createSealedIdentity(set *Settings, passphrase string) error {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return err
	}

	to, err := age.NewScryptRecipient(passphrase)
	if err != nil {
		return err
	}

	set.Recipient = id.Recipient().String()
	set.Identity, err = ageEncrypt([]byte(id.String()), to)

	return err
}

// newSettingsStep writes the settings last: with them the store is made.
func newSettingsStep(s Store, set *Settings) InitStep {
	return InitStep{SettingsKey, func(ctx context.Context) error {
		body, err := json.MarshalIndent(set, "", "  ")
		if err != nil {
			return err
		}

		_, err = s.Create(ctx, SettingsKey, append(body, '\n'))

		return err
	}}
}

// bucketAPI is what making a bucket calls.
type bucketAPI interface {
	CreateBucket(context.Context, *s3.CreateBucketInput, ...func(*s3.Options)) (*s3.CreateBucketOutput, error)
	HeadBucket(context.Context, *s3.HeadBucketInput, ...func(*s3.Options)) (*s3.HeadBucketOutput, error)
	PutPublicAccessBlock(
		context.Context,
		*s3.PutPublicAccessBlockInput,
		...func(*s3.Options),
	) (*s3.PutPublicAccessBlockOutput, error)
	GetBucketPolicy(
		context.Context,
		*s3.GetBucketPolicyInput,
		...func(*s3.Options),
	) (*s3.GetBucketPolicyOutput, error)
	PutBucketPolicy(
		context.Context,
		*s3.PutBucketPolicyInput,
		...func(*s3.Options),
	) (*s3.PutBucketPolicyOutput, error)
	PutBucketVersioning(
		context.Context,
		*s3.PutBucketVersioningInput,
		...func(*s3.Options),
	) (*s3.PutBucketVersioningOutput, error)
	PutBucketEncryption(
		context.Context,
		*s3.PutBucketEncryptionInput,
		...func(*s3.Options),
	) (*s3.PutBucketEncryptionOutput, error)
}

// keyAPI is what making a KMS key calls.
type keyAPI interface {
	DescribeKey(context.Context, *kms.DescribeKeyInput, ...func(*kms.Options)) (*kms.DescribeKeyOutput, error)
	CreateKey(context.Context, *kms.CreateKeyInput, ...func(*kms.Options)) (*kms.CreateKeyOutput, error)
	CreateAlias(context.Context, *kms.CreateAliasInput, ...func(*kms.Options)) (*kms.CreateAliasOutput, error)
	EnableKeyRotation(
		context.Context,
		*kms.EnableKeyRotationInput,
		...func(*kms.Options),
	) (*kms.EnableKeyRotationOutput, error)
}

// s3Initializer makes a bucket that only its owner can read, over TLS, and the key that seals in it.
type s3Initializer struct {
	buckets  bucketAPI
	keys     keyAPI
	bucket   string
	region   string
	endpoint string
	settings *Settings
}

func planS3Init(s *S3Store, cfg aws.Config) []InitStep {
	client := s3.NewFromConfig(cfg)
	m := s3Initializer{
		buckets:  client,
		keys:     kms.NewFromConfig(cfg),
		bucket:   s.bucket,
		region:   cfg.Region,
		endpoint: aws.ToString(client.Options().BaseEndpoint),
		settings: &Settings{Version: settingsVersion},
	}

	return []InitStep{
		{"bucket " + s.bucket, m.ensureBucket},
		{"public access block of " + s.bucket, m.blockPublicAccess},
		{"policy of " + s.bucket + ": " + m.describePolicy(), m.putTLSPolicy},
		{"versioning of " + s.bucket, m.enableVersioning},
		{"KMS key " + m.keyAlias() + ", rotated yearly", m.ensureKMSKey},
		{"encryption of " + s.bucket + " with that key", m.setEncryption},
		newSettingsStep(s, m.settings),
	}
}

// keyAlias of the key. A bucket's name may have dots, which an alias may not.
func (m s3Initializer) keyAlias() string {
	return "alias/slipway-" + strings.ReplaceAll(m.bucket, ".", "_")
}

func (m s3Initializer) ensureBucket(ctx context.Context) error {
	in := &s3.CreateBucketInput{Bucket: &m.bucket}
	if m.region != "us-east-1" { // the one region that may not be named
		in.CreateBucketConfiguration = &s3types.CreateBucketConfiguration{
			LocationConstraint: s3types.BucketLocationConstraint(m.region),
		}
	}

	_, err := m.buckets.CreateBucket(ctx, in)

	switch errorCode(err) {
	case "BucketAlreadyOwnedByYou":
		return nil
	case "BucketAlreadyExists":
		if _, head := m.buckets.HeadBucket(ctx, &s3.HeadBucketInput{Bucket: &m.bucket}); head == nil {
			return nil // ours: some endpoints do not tell the two apart
		}

		return diag.WithHint(
			fmt.Errorf("the bucket belongs to somebody else: %w", err),
			"choose another name: bucket names are one space for all of AWS",
		)
	}

	return err
}

func (m s3Initializer) blockPublicAccess(ctx context.Context) error {
	on := aws.Bool(true)
	_, err := m.buckets.PutPublicAccessBlock(ctx, &s3.PutPublicAccessBlockInput{
		Bucket: &m.bucket,
		PublicAccessBlockConfiguration: &s3types.PublicAccessBlockConfiguration{
			BlockPublicAcls:       on,
			BlockPublicPolicy:     on,
			IgnorePublicAcls:      on,
			RestrictPublicBuckets: on,
		},
	})

	return err
}

// isPlainHTTP says that the endpoint itself is plain HTTP, as an emulator's on loopback is: a TLS-only policy would lock us out.
func (m s3Initializer) isPlainHTTP() bool { return strings.HasPrefix(m.endpoint, "http://") }

func (m s3Initializer) describePolicy() string {
	if m.isPlainHTTP() {
		return "none, since the endpoint itself is without TLS"
	}

	return "TLS only"
}

// putTLSPolicy gives the bucket its policy. One that is there is somebody's: it stays, and has to want TLS itself.
func (m s3Initializer) putTLSPolicy(ctx context.Context) error {
	if m.isPlainHTTP() {
		return nil
	}

	have, err := m.buckets.GetBucketPolicy(ctx, &s3.GetBucketPolicyInput{Bucket: &m.bucket})
	switch {
	case err == nil && requiresTLS(aws.ToString(have.Policy)):
		return nil
	case err == nil:
		return diag.WithHint(errors.New("the bucket has a policy of its own"),
			"add a statement that denies s3:* where aws:SecureTransport is false, or use a bucket of its own")
	case errorCode(err) != "NoSuchBucketPolicy":
		return err
	}

	partition := "aws"

	switch {
	case strings.HasPrefix(m.region, "cn-"):
		partition = "aws-cn"
	case strings.HasPrefix(m.region, "us-gov-"):
		partition = "aws-us-gov"
	}

	arn := "arn:" + partition + ":s3:::" + m.bucket
	policy, err := json.Marshal(map[string]any{
		"Version": "2012-10-17",
		"Statement": []any{map[string]any{
			"Sid": "TLSOnly", "Effect": "Deny", "Principal": "*", "Action": "s3:*",
			"Resource":  []string{arn, arn + "/*"},
			"Condition": map[string]any{"Bool": map[string]string{"aws:SecureTransport": "false"}},
		}},
	})
	if err != nil {
		return err
	}

	_, err = m.buckets.PutBucketPolicy(
		ctx,
		&s3.PutBucketPolicyInput{Bucket: &m.bucket, Policy: aws.String(string(policy))},
	)

	return err
}

// requiresTLS says whether a bucket's policy denies requests without TLS.
func requiresTLS(policy string) bool {
	type statement struct {
		Effect    string
		Condition struct {
			Bool map[string]any
		}
	}

	var one struct{ Statement statement }
	var many struct{ Statement []statement }
	if json.Unmarshal([]byte(policy), &one) == nil {
		many.Statement = []statement{one.Statement}
	} else if json.Unmarshal([]byte(policy), &many) != nil {
		return false
	}

	return slices.ContainsFunc(many.Statement, func(s statement) bool {
		return s.Effect == "Deny" && fmt.Sprint(s.Condition.Bool["aws:SecureTransport"]) == "false"
	})
}

func (m s3Initializer) enableVersioning(ctx context.Context) error {
	_, err := m.buckets.PutBucketVersioning(ctx, &s3.PutBucketVersioningInput{
		Bucket: &m.bucket, VersioningConfiguration: &s3types.VersioningConfiguration{Status: s3types.BucketVersioningStatusEnabled},
	})
	return err
}

// ensureKMSKey finds the key by its alias or makes both. A key without alias, left by a run that was cut short, costs a
// dollar a month and nothing else.
func (m s3Initializer) ensureKMSKey(ctx context.Context) error {
	alias := m.keyAlias()
	found, err := m.keys.DescribeKey(ctx, &kms.DescribeKeyInput{KeyId: &alias})
	switch {
	case err == nil:
		m.settings.KMSKeyARN = aws.ToString(found.KeyMetadata.Arn)
	case errorCode(err) == "NotFoundException":
		made, err := m.keys.CreateKey(ctx, &kms.CreateKeyInput{
			Description: aws.String("Slipway: secrets of the clusters in s3://" + m.bucket),
			Tags:        []kmstypes.Tag{{TagKey: aws.String("slipway.dev/state"), TagValue: &m.bucket}},
		})
		if err != nil {
			return err
		}

		m.settings.KMSKeyARN = aws.ToString(made.KeyMetadata.Arn)
		if _, err := m.keys.CreateAlias(ctx, &kms.CreateAliasInput{AliasName: &alias, TargetKeyId: made.KeyMetadata.KeyId}); err != nil {
			return err
		}

	default:
		return err
	}

	_, err = m.keys.EnableKeyRotation(ctx, &kms.EnableKeyRotationInput{KeyId: &m.settings.KMSKeyARN})

	return err
}

func (m s3Initializer) setEncryption(ctx context.Context) error {
	_, err := m.buckets.PutBucketEncryption(ctx, &s3.PutBucketEncryptionInput{
		Bucket: &m.bucket,
		ServerSideEncryptionConfiguration: &s3types.ServerSideEncryptionConfiguration{
			Rules: []s3types.ServerSideEncryptionRule{{
				BucketKeyEnabled: aws.Bool(true), // one call to KMS for many objects
				ApplyServerSideEncryptionByDefault: &s3types.ServerSideEncryptionByDefault{
					SSEAlgorithm: s3types.ServerSideEncryptionAwsKms, KMSMasterKeyID: &m.settings.KMSKeyARN,
				},
			}},
		},
	})

	return err
}
